#include "services/worker/process/worker_common.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/kv/kv_digest.h"
#include "services/base/process.h"
#include "services/log/log.h"
#include "services/orchestrator_link/own_build.h"
#include "services/worker/engine/data_plane.h"
#include "services/worker/process/run_worker.h"

namespace skein::services {
namespace {

std::string AdvertisedHost(const WorkerOptions& options) {
  return options.advertise.empty() ? options.host : options.advertise;
}

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

std::string Details(const WorkerOptions& options, int admin_port) {
  v1::RegisterRequest details;
  details.set_admin_endpoint(absl::StrCat(AdvertisedHost(options), ":", admin_port));
  details.set_device(options.device);
  details.set_host(HostName());
  details.set_pid(getpid());
  return details.SerializeAsString();
}

}  // namespace

absl::StatusOr<WorkerServers> ListenAsWorker(const WorkerOptions& options, grpc::Service* service,
                                             int message_bytes_max, AdminServer* admin) {
  auto rpc = ServeRpc(absl::StrCat(options.host, ":", options.port), {service}, message_bytes_max);
  if (!rpc.ok()) return AboutListening("port", rpc.status());
  WorkerServers out{*std::move(rpc), admin};
  if (auto status = WritePortFile(options.port_file, out.rpc.port); !status.ok()) return status;
  LogInfo("listening",
          {{"grpc_port", out.rpc.port}, {"admin_port", static_cast<int>(admin->port())}});
  return out;
}

std::string EndpointOf(const WorkerOptions& options, const WorkerServers& servers) {
  return absl::StrCat(AdvertisedHost(options), ":", servers.rpc.port);
}

scheduler::WorkerIdentity IdentityOf(const WorkerOptions& options, scheduler::Role role,
                                     const engine::EngineSpec& spec, const WorkerServers& servers) {
  scheduler::WorkerIdentity identity;
  identity.role = role;
  identity.model = ServedName(options);
  identity.endpoint = EndpointOf(options, servers);
  identity.incarnation = {RandomIncarnation()};
  identity.shape = ShapeOf(spec);
  identity.total_blocks = PoolBlocksOf(options, spec);
  identity.max_positions = spec.max_positions;
  identity.node = options.node.empty() ? HostName() : options.node;
  identity.details = Details(options, servers.admin->port());
  identity.build = OwnBuild();
  identity.kv_digest = scheduler::KvDigest(identity.shape);
  return identity;
}

scheduler::BatchLimits BatchLimitsOf(const WorkerOptions& options) {
  scheduler::BatchLimits limits;
  limits.max_batch_tokens = options.BatchTokens();
  limits.max_batch_sequences = options.BatchSequences();
  limits.max_slice_tokens = options.SliceTokens();
  limits.min_slice_tokens = std::min<int64_t>(limits.min_slice_tokens, limits.max_slice_tokens);
  return limits;
}

int64_t PoolBlocksOf(const WorkerOptions& options, const engine::EngineSpec& spec) {
  const bool probes = EngineWatchOf(options, spec).probe_interval_us > 0;
  return spec.own_blocks() - (probes ? 1 : 0);
}

scheduler::EngineWatchConfig EngineWatchOf(const WorkerOptions& options,
                                           const engine::EngineSpec& spec) {
  scheduler::EngineWatchConfig watch;
  watch.step_timeout_us = static_cast<int64_t>(options.StepTimeoutS() * 1e6);
  if (spec.own_blocks() < 2) return watch;  // none is left for probes
  watch.probe_interval_us = static_cast<int64_t>(options.probe_interval_s * 1e6);
  watch.probe_block = {static_cast<int32_t>(spec.own_blocks() - 1)};
  return watch;
}

prometheus::Histogram& StepTokens(const engine::EngineSpec& spec, const std::string& model,
                                  Metrics* metrics) {
  Metrics::Labels cache = EngineLabels(model);
  cache["block_size"] = std::to_string(spec.kv.block_tokens);
  cache["cache_dtype"] = engine::NameOf(spec.kv.dtype);
  cache["num_gpu_blocks"] = std::to_string(spec.own_blocks());
  metrics
      ->Gauge("vllm:cache_config_info",
              "Always 1; the labels are the size and type of the KV cache.", cache)
      .Set(1);
  return metrics->Histogram("vllm:iteration_tokens_total", "Tokens of an engine step.",
                            StepTokenBuckets(), EngineLabels(model));
}

prometheus::Histogram& DecodeQueueSeconds(const std::string& model, Metrics* metrics) {
  return metrics->Histogram("skein_request_decode_queue_time_seconds",
                            "From when a request's KV had arrived until its first decode step "
                            "began.",
                            TimeToFirstTokenBuckets(), {{"model_name", model}});
}

void RefreshCommMade(const engine::FabricCounts& made, const std::string& model, Metrics* metrics) {
  const Metrics::Labels labels = {{"model_name", model}};
  metrics->Total("skein_comm_links_made_total", "Links made to other instances.", labels,
                 static_cast<double>(made.links));
  metrics->Total("skein_comm_groups_made_total",
                 "Communicators made. Decode instances make those of their node's groups, prefill "
                 "instances those of pairs over NCCL; rings make none.",
                 labels, static_cast<double>(made.groups));
}

void RefreshComm(const std::vector<engine::CommTotals>& all, const std::string& model,
                 Metrics* metrics) {
  for (const engine::CommTotals& one : all) {
    const Metrics::Labels labels = {{"model_name", model},
                                    {"path", std::string(engine::NameOf(one.path))},
                                    {"ranks", std::to_string(one.ranks)}};
    metrics->Total("skein_comm_bytes_total",
                   "Bytes exchanged with other instances in steps together.", labels, one.bytes);
    metrics->Total("skein_comm_busy_seconds_total",
                   "Time in calls that exchanged bytes in steps together, waits included.", labels,
                   one.busy_seconds);
    metrics
        ->Gauge("skein_comm_best_bytes_per_second",
                "Rate of the fastest call of at least 1 MiB in steps together; 0 before the first.",
                labels)
        .Set(one.best_gb_per_s * 1e9);
  }
}

void RefreshDataConnections(Metrics* metrics) {
  metrics->Total("skein_data_connections_refused_total",
                 "Connections of other workers that were closed at the limit of connections.", {},
                 DataConnectionsRefused());
}

void RefreshSteps(const std::vector<StepTotals>& steps, uint64_t probes, const std::string& model,
                  Metrics* metrics) {
  for (const StepTotals& kind : steps) {
    const Metrics::Labels labels = {
        {"model_name", model}, {"mode", kind.mode}, {"ranks", std::to_string(kind.ranks)}};
    metrics->Total("skein_engine_steps_total",
                   "Engine steps completed, by mode and by the instances that ran them together.",
                   labels, kind.steps);
    metrics->Total("skein_engine_step_tokens_total", "Tokens that completed engine steps ran.",
                   labels, kind.tokens);
  }
  metrics->Total("skein_engine_probes_total", "One-token steps started to test the idle engine.",
                 {{"model_name", model}}, probes);
}

void RefreshLoad(const scheduler::WorkerLoad& load, WaitingRequests waiting,
                 const std::string& model, Metrics* metrics) {
  const Metrics::Labels labels = EngineLabels(model);
  const auto set = [&](const char* name, const char* help, double value) {
    metrics->Gauge(name, help, labels).Set(value);
  };
  set("vllm:num_requests_running", "Requests in the batch.",
      static_cast<double>(load.running_requests));
  set("vllm:num_requests_waiting", "Requests waiting for the batch.",
      static_cast<double>(load.queued_requests));
  for (const auto& [reason, count] :
       {std::pair("capacity", waiting.capacity), std::pair("deferred", waiting.deferred)}) {
    Metrics::Labels by_reason = labels;
    by_reason["reason"] = reason;
    metrics
        ->Gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by reason.", by_reason)
        .Set(static_cast<double>(count));
  }
  SetNoAdapters(metrics);
  set("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.",
      load.total_blocks == 0
          ? 0
          : static_cast<double>(load.held_blocks) / static_cast<double>(load.total_blocks));
  const auto blocks = [&](const char* state, int64_t count) {
    metrics
        ->Gauge("skein_kv_blocks", "KV blocks, by state.",
                {{"model_name", model}, {"state", state}})
        .Set(static_cast<double>(count));
  };
  blocks("free", load.free_blocks);
  blocks("held", load.held_blocks);
  blocks("cached", load.cached_blocks);
  blocks("total", load.total_blocks);
  metrics
      ->Gauge("skein_engine_tokens_per_second", "Tokens per second that recent steps computed.",
              {{"model_name", model}})
      .Set(load.tokens_per_second);
  metrics
      ->Gauge("skein_engine_step_age_seconds",
              "Time that the current step has run; 0 if none runs or it waits for other instances.",
              {{"model_name", model}})
      .Set(static_cast<double>(load.step_age_us) * 1e-6);
}

namespace {

// When the core has drained, reports and stream ends may still be in transit; the server's shutdown
// sends them. It cancels other calls after a second and then waits for their answers without limit,
// so a call that hangs with the engine would block it.
[[noreturn]] void EndWithFailedEngine(const absl::Status& why, WorkerServers* servers) {
  constexpr double kShutdownS = 3;
  RunWithin(kShutdownS, [server = servers->rpc.server.get()] {
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  });
  ExitWithFailedEngine(why);
}

}  // namespace

absl::Status ServeUntilDrained(const WorkerOptions& options, WorkerEnd* end,
                               const std::function<void(int64_t)>& drain,
                               const std::function<void()>& stop, WorkerServers* servers) {
  end->AwaitStop();
  const absl::Status refused = end->refused();  // what comes after a stop signal does not count
  double wait_s = end->leaves_within_s() + 2;
  if (end->engine().ok()) {
    LogInfo("draining", {{"grace_s", options.drain_grace_s}});
    drain(static_cast<int64_t>(options.drain_grace_s * 1e6));
    // The core ends what is left when the grace is over; a little more for leases and final
    // reports.
    wait_s = options.drain_grace_s + options.lease_s + 2;
  }
  const bool in_time = end->AwaitDrained(wait_s);
  if (!end->engine().ok()) EndWithFailedEngine(end->engine(), servers);
  if (!in_time) LogWarning("requests were still running at the end of the drain's grace");
  // The step in flight may take as long as it may at any other time.
  if (!RunWithin(options.StepTimeoutS(), stop)) {
    EndWithFailedEngine(
        absl::DeadlineExceededError("a step did not end within --step-timeout-s after the drain"),
        servers);
  }
  servers->rpc.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  servers->admin->Stop(std::chrono::milliseconds(200));
  if (refused.ok()) return refused;
  return absl::AbortedError(
      absl::StrCat("the orchestrator refuses this worker: ", refused.message()));
}

absl::StatusOr<WorkerEngine> LoadWorkerEngine(const WorkerOptions& options, scheduler::Role role,
                                              WorkerStart* start) {
  const EndOnStopSignal end_on_stop_signal;
  const bool weights = options.device != "emulated";
  if (!options.model.empty()) {
    const absl::Status waited = WaitForModel(
        options.model, {.tokenizer = weights, .weights = weights}, options.wait_for_model_s,
        [start](const std::string& what) { start->WaitFor(what); });
    if (!waited.ok()) return waited;
  }
  start->Load(0, 0);
  return MakeWorkerEngine(options, role, [start](int64_t done_bytes, int64_t total_bytes) {
    start->Load(done_bytes, total_bytes);
  });
}

void LogEngine(const engine::EngineSpec& spec, const std::string& model) {
  LogInfo("engine ready", {{"model", model},
                           {"model_hash", spec.model_hash},
                           {"device", spec.device},
                           {"parameters", spec.num_parameters},
                           {"max_positions", spec.max_positions},
                           {"kv_dtype", engine::NameOf(spec.kv.dtype)},
                           {"kv_blocks", spec.own_blocks()},
                           {"block_tokens", spec.kv.block_tokens},
                           {"kv_bytes_per_token", spec.kv.BytesPerToken()}});
}

}  // namespace skein::services
