// Flags of a prefill- or decode-worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "services/base/flags.h"

namespace skein::services {

struct WorkerOptions {
  std::string model;
  std::string served_name;
  std::string orchestrator = "127.0.0.1:7100";
  std::string device = "cpu";
  std::string profile;
  int64_t emulated_vocab_size = 0;
  int64_t emulated_layers = 1;
  int64_t emulated_kv_heads = 1;
  int64_t emulated_head_dim = 4;
  int64_t emulated_decode_step_us = 0;
  int64_t emulated_decode_sequence_us = 0;
  std::string isa = "auto";
  std::string host = "127.0.0.1";
  std::string advertise;
  std::string node;
  int64_t port = 0;
  std::string port_file;
  int64_t admin_port = 0;
  std::string admin_port_file;
  int64_t threads = 1;
  double kv_gib = 0.5;
  int64_t block_tokens = 16;
  std::string kv_dtype = "auto";
  int64_t max_positions = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_batch_sequences = 0;
  int64_t max_chunk_tokens = 0;
  int64_t max_requests = 256;
  double drain_grace_s = 20;
  double lease_s = 3;
  double grace_s = 2;
  std::string handoff = "one-sided";
  std::string handoff_path = "auto";
  std::string comm_path = "auto";
  int64_t handoff_backends = 4;
  int64_t handoff_staging_bytes = 8 << 20;
  int64_t inbox = 16384;

  bool IsCuda() const { return device.rfind("cuda", 0) == 0; }
  // What 0 stands for is the device's: enough for its products to run at their full rate.
  int64_t BatchTokens() const { return Given(max_batch_tokens, IsCuda() ? 8192 : 512); }
  int64_t BatchSequences() const { return Given(max_batch_sequences, IsCuda() ? 256 : 64); }
  int64_t ChunkTokens() const {
    return std::min(Given(max_chunk_tokens, IsCuda() ? 8192 : 512), BatchTokens());
  }

  void Register(FlagSet* flags) {
    flags->String(&model, "model", "Hugging Face folder of the model");
    flags->String(&served_name, "served_name", "name that clients use; default: the folder's");
    flags->String(&orchestrator, "orchestrator", "host:port of the orchestrator");
    flags->String(&device, "device", "cpu, cuda:N or emulated");
    RegisterEmulated(flags);
    flags->String(&isa, "isa", "CPU kernels: auto, avx512bf16, avx2 or portable");
    flags->String(&host, "host", "address to listen on");
    flags->String(&advertise, "advertise",
                  "address that others reach this worker at; default: host");
    flags->String(
        &node, "node",
        "instances of one node are planned for as close together; default: the host's name");
    flags->Int(&port, "port", "gRPC port; 0 takes a free one", 0, 65535);
    flags->String(&port_file, "port_file", "file to write the bound gRPC port to");
    flags->Int(&admin_port, "admin_port", "HTTP port of metrics and probes; 0 takes a free one", 0,
               65535);
    flags->String(&admin_port_file, "admin_port_file", "file to write the bound HTTP port to");
    flags->Int(&threads, "threads", "threads of the engine", 1, 1024);
    flags->Double(&kv_gib, "kv_gib", "memory of the KV blocks, GiB", 0.0001, 65536);
    flags->Int(&block_tokens, "block_tokens", "tokens of a KV block", 1, 4096);
    flags->String(&kv_dtype, "kv_dtype", "auto (the weights'), f32, bf16 or f16");
    flags->Int(&max_positions, "max_positions", "longest sequence; 0: the model's", 0, 1 << 24);
    flags->Int(&max_batch_tokens, "max_batch_tokens",
               "tokens of one step; the same at all prefill-workers of a model; 0: 512, on a GPU "
               "8192",
               0, 1 << 20);
    flags->Int(&max_batch_sequences, "max_batch_sequences",
               "sequences of one step; 0: 64, on a GPU 256", 0, 1 << 16);
    flags->Int(&max_chunk_tokens, "max_chunk_tokens",
               "tokens of one prompt in one step; 0: 512, on a GPU 8192", 0, 1 << 20);
    flags->Int(&max_requests, "max_requests", "requests held at a time", 1, 1 << 20);
    flags->Double(&drain_grace_s, "drain_grace_s",
                  "after SIGTERM, how long requests may take to finish", 0, 3600);
    flags->Double(&lease_s, "lease_s", "lease of a KV grant", 0.1, 3600);
    // At least what a put may still take that was posted within the lease (prefill_shell.cc,
    // kPutTimeout).
    flags->Double(&grace_s, "grace_s", "after a lease, how long until its blocks are used again", 2,
                  3600);
    flags->String(&handoff, "handoff",
                  "decode: one-sided (KV is put into its blocks) or staging (through a few buffers "
                  "that writers take turns with)");
    flags->String(&handoff_path, "handoff_path",
                  "GPUs: auto (straight between the memories of GPUs of one node where that is "
                  "possible, else through the host's) or host (always through the host's)");
    flags->String(
        &comm_path, "comm_path",
        "prefill on GPUs: how instances that step together exchange KV: ipc (between GPUs "
        "of one node), nccl, host (through the hosts' memory), or auto (the first of them "
        "that all can take); one that is named is taken or the step fails");
    flags->Int(&handoff_backends, "handoff_backends", "staging: buffers", 1, 1024);
    flags->Int(&handoff_staging_bytes, "handoff_staging_bytes", "staging: bytes of a buffer", 1,
               int64_t{1} << 40);
    flags->Int(&inbox, "inbox", "messages waiting for the core before new ones are refused", 1,
               1 << 20);
  }

  // Of --device=emulated, which computes no model: what it is to look like, and how long its steps
  // take.
  void RegisterEmulated(FlagSet* flags) {
    flags->String(&profile, "profile",
                  "emulated: latency profile of prefill, llama3-8b-a100 or a file; none: no time");
    flags->Int(&emulated_vocab_size, "emulated_vocab_size",
               "emulated: token ids; 0: as in the model's config.json", 0, 1 << 24);
    flags->Int(&emulated_layers, "emulated_layers", "emulated: layers of KV", 1, 1024);
    flags->Int(&emulated_kv_heads, "emulated_kv_heads", "emulated: KV heads", 1, 1024);
    flags->Int(&emulated_head_dim, "emulated_head_dim",
               "emulated: numbers of 2 bytes a head, a multiple of 4", 4, 1024);
    flags->Int(&emulated_decode_step_us, "emulated_decode_step_us",
               "emulated: time of a decode step", 0, 60'000'000);
    flags->Int(&emulated_decode_sequence_us, "emulated_decode_sequence_us",
               "emulated: time that each sequence adds to a decode step", 0, 60'000'000);
  }

 private:
  static int64_t Given(int64_t flag, int64_t otherwise) { return flag > 0 ? flag : otherwise; }
};

}  // namespace skein::services
