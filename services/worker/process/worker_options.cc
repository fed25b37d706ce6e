#include "services/worker/process/worker_options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/admin/model_wait.h"
#include "services/base/process.h"
#include "services/http/site_check.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/tls/security.h"
#include "services/tracing/endpoint.h"

namespace skein::services {
namespace {

void RegisterModel(WorkerOptions* options, FlagSet* flags) {
  flags->Group("Model and device");
  flags
      ->String(&options->model, "model",
               "Hugging Face folder of the model; required unless the device is emulated.")
      .Value("DIR");
  RegisterModelWait(&options->wait_for_model_s, flags);
  flags->String(&options->served_name, "served-name", "Name of the model in the cluster.")
      .Value("NAME")
      .Default("the folder's name");
  flags->String(&options->device, "device", "Where the model runs: cpu, cuda:N or emulated.")
      .Value("DEVICE");
  flags->String(&options->isa, "isa", "Instructions that the CPU kernels use.")
      .Value("ISA")
      .OneOf({"auto", "avx512bf16", "avx512", "avx2", "portable"});
  flags
      ->String(
          &options->reproducible, "reproducible",
          "Compute each token from its own sequence alone, bit for bit, whatever the batch, "
          "plan and formation (--device cpu). auto: on where it was measured to cost at most "
          "5 %, which follows from --isa. It must be the same at all workers of a model: where "
          "their CPUs differ, give all of them on or off.")
      .Value("WHEN")
      .OneOf({"auto", "on", "off"});
  flags->Int(&options->threads, "threads", "Threads of the engine, on a CPU.", 1, 1024);
  flags->Int(&options->max_positions, "max-positions",
             "Longest sequence, prompt and answer together; 0 means the model's.", 0, 1 << 24);
}

// Of "host:port[+...]": whether each host is this one.
bool AreHere(const std::string& addresses) {
  const std::vector<std::string> all = absl::StrSplit(addresses, absl::ByAnyChar("+,"));
  return std::all_of(all.begin(), all.end(), [](const std::string& address) {
    return http::IsLoopbackHost(address.substr(0, address.rfind(':')));
  });
}

// Spans name requests and models. OTLP goes in plain text, whatever --tls-dir says.
absl::Status CheckCollector(const TracingOptions& tracing) {
  if (tracing.endpoint.empty() || tracing.IsLocal()) return absl::OkStatus();
  const auto collector = ParseTraceEndpoint(tracing.endpoint);
  if (!collector.ok() || http::IsLoopbackHost(collector->address.host)) return collector.status();
  return absl::InvalidArgumentError(absl::StrCat(
      "--require-encryption: spans to --trace-endpoint '", tracing.endpoint,
      "' would be in plain text; run a collector on this host and give its loopback address"));
}

// Without --tls-dir gRPC is in plain text. After the flags of TLS, whose check opens its files.
void CheckEncryption(const WorkerOptions* options, FlagSet* flags) {
  flags->Check([options] {
    if (!options->require_encryption) return absl::OkStatus();
    if (options->comm_path == "nccl") {
      return absl::InvalidArgumentError(
          "--require-encryption: --comm-path nccl may go to other hosts in plain text");
    }
    if (absl::Status spans = CheckCollector(options->tracing); !spans.ok()) return spans;
    if (tls::ProcessSecurity().certificates != nullptr) return absl::OkStatus();
    const bool listens_here = http::IsLoopbackHost(options->host);
    if (listens_here && AreHere(options->orchestrator)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--require-encryption: gRPC ", listens_here ? "to '" : "at '",
        listens_here ? options->orchestrator : options->host, "' would be in plain text; give ",
        listens_here ? "--orchestrator" : "--host", " a loopback address, or --tls-dir"));
  });
}

void RegisterAddresses(WorkerOptions* options, FlagSet* flags) {
  flags->Group("Addresses");
  flags
      ->String(&options->orchestrator, "orchestrator",
               "Address of the orchestrator; or of several, of which one leads and the others "
               "stand by, joined by '+'.")
      .Value("HOST:PORT[+...]");
  flags->Check([options] {
    absl::Status cell = ParseCell(options->orchestrator).status();
    if (cell.ok()) return cell;
    return absl::InvalidArgumentError(
        absl::StrCat("--orchestrator: ", std::string(cell.message())));
  });
  flags->String(&options->host, "host", "Address to listen on.").Value("ADDRESS");
  flags
      ->String(&options->advertise, "advertise",
               "Address or DNS name at which others reach this worker; required where --host is "
               "a wildcard address such as 0.0.0.0.")
      .Value("ADDRESS")
      .Default("--host");
  flags
      ->String(&options->node, "node",
               "Locality label; the planner groups instances that share it.")
      .Value("LABEL")
      .Default("the host's name");
  flags->Int(&options->port, "port", "gRPC port; 0 takes a free one.", 0, 65535);
  flags->String(&options->port_file, "port-file",
                "File to write the gRPC port to once it is open.");
  flags->Int(
      &options->data_port, "data-port",
      "TCP port for KV transfers; a prefill-worker also uses the next port. 0 takes free ports.", 0,
      65534);
  flags
      ->String(&options->data_host, "data-host",
               "KV transfers use only the network device with this address; TCP connections are "
               "accepted "
               "only there.")
      .Value("ADDRESS")
      .Default("--host; all devices if that is a wildcard address");
  flags->Bool(
      &options->require_encryption, "require-encryption",
      "Refuse what would cross the network in plain text: connections for KV and ring steps "
      "to other hosts, which nothing encrypts, spans to a collector on another host, and gRPC "
      "without --tls-dir at addresses that other hosts reach. Within a host all goes through "
      "memory.");
  options->admin.Register(flags);
}

void RegisterKv(WorkerOptions* options, FlagSet* flags) {
  flags->Group("KV");
  flags->Double(&options->kv_gib, "kv-gib", "Memory for KV blocks, in GiB.", 0.0001, 65536);
  flags->Double(
      &options->device_memory_gib, "device-memory-gib",
      "Memory budget of a CPU worker for weights and KV, in GiB (--device cpu). Weights are "
      "copied into it, KV blocks take the rest, and --kv-gib is ignored. 0: no budget; "
      "weights stay in the page cache, which workers of one machine share.",
      0, 65536);
  flags->Int(&options->block_tokens, "block-tokens",
             "Tokens of a KV block; the same at all workers of a model.", 1, 4096);
  flags->String(&options->kv_dtype, "kv-dtype", "Type of KV; auto means the weights'.")
      .Value("TYPE")
      .OneOf({"auto", "f32", "bf16", "f16"});
}

void RegisterBatch(WorkerOptions* options, const char* more, FlagSet* flags) {
  flags->Group("Batches");
  flags->Int(
      &options->max_batch_tokens, "max-batch-tokens",
      absl::StrCat("Maximum number of tokens in a step; 0 means 512, or 8192 on a GPU.", more), 0,
      1 << 20);
  flags->Int(&options->max_batch_sequences, "max-batch-sequences",
             "Maximum number of sequences in a step; 0 means 64, or 256 on a GPU.", 0, 1 << 16);
}

void RegisterLimits(WorkerOptions* options, FlagSet* flags) {
  flags->Group("Limits and times");
  flags->Int(
      &options->max_requests, "max-requests",
      "Maximum number of requests this worker holds at once. The orchestrator admits at most "
      "the sum over all instances of a model and answers 429 beyond that.",
      1, 1 << 20);
  flags->Double(&options->drain_grace_s, "drain-grace-s",
                "Time that requests have to finish after SIGTERM.", 0, 3600);
  flags->Double(
      &options->step_timeout_s, "step-timeout-s",
      "Maximum time of one engine step; a longer step counts as an engine failure and the "
      "process exits with code 3. 0: 60 on a GPU, 600 on a CPU.",
      0, 86400);
  flags->Double(&options->probe_interval_s, "probe-interval-s",
                "Run a one-token test step after the engine has been idle for this long. 0: never.",
                0, 3600);
}

void RegisterHandoffPath(WorkerOptions* options, FlagSet* flags) {
  flags->Group("Handoff of KV");
  flags
      ->String(&options->handoff_path, "handoff-path",
               "On GPUs: auto copies directly between GPUs of one node where that is possible, "
               "otherwise through host memory; host always copies through host memory.")
      .Value("PATH")
      .OneOf({"auto", "host"});
}

void CheckModel(const WorkerOptions* options, FlagSet* flags) {
  flags->Check([options] {
    if (!options->model.empty()) return absl::OkStatus();
    if (options->device != "emulated") return absl::InvalidArgumentError("--model is required");
    if (!options->served_name.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--served-name is required, since there is no --model");
  });
}

// Libraries of a GPU choose the order of their own sums.
void CheckReproducible(const WorkerOptions* options, FlagSet* flags) {
  flags->Check([options] {
    if (options->reproducible != "on" || !options->IsCuda()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--reproducible: --device '", options->device,
                                                   "' cannot do it; only cpu can"));
  });
}

// A GPU's memory is what it has, and the emulated device has no weights.
void CheckDeviceMemory(const WorkerOptions* options, FlagSet* flags) {
  flags->Check([options] {
    if (options->device_memory_gib == 0 || options->device == "cpu") return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--device-memory-gib: --device '",
                                                   options->device,
                                                   "' cannot be given a budget; only cpu can"));
  });
}

// Whether a server with this --host listens on all addresses of the machine: to others it is no
// address at all.
bool IsEveryAddress(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_UNSPECIFIED(&v6);
  return text.empty();
}

// Workers that all advertise 0.0.0.0 are one endpoint to the orchestrator, and take each other's
// place for ever.
void CheckAdvertised(const WorkerOptions* options, FlagSet* flags) {
  flags->Check([options] {
    const bool given = !options->advertise.empty();
    const std::string& advertised = given ? options->advertise : options->host;
    if (!IsEveryAddress(advertised)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        given ? "--advertise" : "--host", ": '", advertised,
        "' is a wildcard address; other processes cannot connect to it. Set --advertise to the "
        "address or DNS name of this worker"));
  });
}

// Of --device=emulated, which computes no model.
void RegisterEmulated(WorkerOptions* options, FlagSet* flags) {
  flags->Group("Emulated device (--device emulated)");
  flags->Int(&options->emulated_vocab_size, "emulated-vocab-size",
             "Size of the vocabulary; 0 means that of the model's config.json.", 0, 1 << 24);
  flags->Int(&options->emulated_layers, "emulated-layers", "Layers of KV.", 1, 1024);
  flags->Int(&options->emulated_kv_heads, "emulated-kv-heads", "KV heads.", 1, 1024);
  flags->Int(&options->emulated_head_dim, "emulated-head-dim",
             "Numbers (of 2 bytes) per head, a multiple of 4.", 4, 1024);
  flags->Int(&options->emulated_fail_token, "emulated-fail-token",
             "A step whose prompt contains this token fails the engine (for tests). -1: off.", -1,
             1 << 24);
  flags->Int(&options->emulated_hang_token, "emulated-hang-token",
             "A step whose prompt contains this token never ends (for tests). -1: off.", -1,
             1 << 24);
  flags->Int(&options->emulated_nan_token, "emulated-nan-token",
             "A sequence whose prompt contains this token gets NaN logits (for tests). -1: off.",
             -1, 1 << 24);
}

}  // namespace

void WorkerOptions::RegisterPrefill(FlagSet* flags) {
  admin.port = 7201;
  flags->Name("prefill_worker");
  flags->About("Skein's prefill-worker: computes prompts and hands their KV to decode-workers.");
  RegisterModel(this, flags);
  RegisterAddresses(this, flags);
  RegisterKv(this, flags);
  RegisterBatch(this, " The same at all prefill-workers of a model.", flags);
  flags->Int(&max_slice_tokens, "max-slice-tokens",
             "Maximum number of tokens of one prompt in a step; 0 means 512, or 8192 on a GPU.", 0,
             1 << 20);
  RegisterLimits(this, flags);
  flags->Double(&keep_prompts_s, "keep-prompts-s",
                "Keep the KV of a prompt for so long after its handoff, unless other prompts need "
                "the blocks: if its decode-worker is lost, only what is new is computed. 0: never.",
                0, 86400);
  RegisterHandoffPath(this, flags);
  flags->Group("Sequence parallelism");
  flags
      ->String(&comm_path, "comm-path",
               "On GPUs: how instances that compute one prompt exchange KV. ipc: between GPUs of "
               "one node; nccl; host: through host memory; auto: the first of these that all of "
               "them support. With a named path, a step fails if it cannot use it.")
      .Value("PATH")
      .OneOf({"auto", "ipc", "nccl", "host"});
  RegisterEmulated(this, flags);
  flags
      ->String(&profile, "profile",
               "Latency profile that gives the time of a prefill step: a built-in name "
               "(llama3-8b-a100) or a file. Without it prefill takes no time.")
      .Value("PROFILE");
  tracing.Register(flags);
  tls::RegisterServiceSecurity(flags);
  CheckEncryption(this, flags);
  RegisterLogFlags(&log_level, flags);
  CheckModel(this, flags);
  CheckReproducible(this, flags);
  CheckDeviceMemory(this, flags);
  CheckAdvertised(this, flags);
}

void WorkerOptions::RegisterDecode(FlagSet* flags) {
  admin.port = 7301;
  flags->Name("decode_worker");
  flags->About("Skein's decode-worker: takes over the KV of prompts and generates tokens.");
  RegisterModel(this, flags);
  RegisterAddresses(this, flags);
  RegisterKv(this, flags);
  RegisterBatch(this, "", flags);
  RegisterLimits(this, flags);
  flags->Double(&lease_s, "lease-s",
                "Time that a prefill-worker may hold KV blocks here without renewing its lease.",
                0.1, 3600);
  RegisterHandoffPath(this, flags);
  flags
      ->String(&handoff, "handoff",
               "How KV arrives: one-sided writes it directly into its blocks; staging goes "
               "through a few buffers that prefill-workers use in turn.")
      .Value("KIND")
      .OneOf({"one-sided", "staging"});
  flags->Int(&handoff_staging_buffers, "handoff-staging-buffers", "Buffers for --handoff staging.",
             1, 1024);
  flags->Int(&handoff_staging_bytes, "handoff-staging-bytes",
             "Bytes of one buffer for --handoff staging.", 1, int64_t{1} << 40);
  flags->Group("Formations");
  flags->Double(
      &formation_own_share, "formation-own-share",
      "Share of a bound group's steps in which its instances run what they run alone, while "
      "both that and the group's sequences have tokens to compute. Each of the two has at "
      "least 1 step in 16. 0: by the tokens that wait for each. The first instance of the "
      "group decides, so give all of a node the same.",
      0, 1);
  RegisterEmulated(this, flags);
  flags->Int(&emulated_decode_step_us, "emulated-decode-step-us", "Time of a decode step.", 0,
             60'000'000);
  flags->Int(&emulated_decode_sequence_us, "emulated-decode-sequence-us",
             "Time that each sequence adds to a decode step.", 0, 60'000'000);
  flags
      ->String(
          &profile, "profile",
          "Latency profile: a built-in name or a file. Its formations say how many times as "
          "fast a bound group's decode steps are, its other numbers how long prompts take that "
          "are computed anew. Without it the first are as fast as those of one instance, and "
          "the others take no time.")
      .Value("PROFILE");
  tracing.Register(flags);
  tls::RegisterServiceSecurity(flags);
  CheckEncryption(this, flags);
  RegisterLogFlags(&log_level, flags);
  CheckModel(this, flags);
  CheckReproducible(this, flags);
  CheckDeviceMemory(this, flags);
  CheckAdvertised(this, flags);
}

}  // namespace skein::services
