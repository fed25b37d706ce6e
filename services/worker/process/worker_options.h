// Flags of a prefill- or decode-worker. Those of one role only keep their default in the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "services/admin/admin_server.h"
#include "services/flags/flags.h"
#include "services/tracing/options.h"

namespace skein::services {

struct WorkerOptions {
  std::string model;
  double wait_for_model_s = 0;
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
  int64_t emulated_fail_token = -1;
  int64_t emulated_hang_token = -1;
  int64_t emulated_nan_token = -1;
  std::string isa = "auto";
  std::string reproducible = "auto";
  std::string host = "127.0.0.1";
  std::string advertise;
  std::string node;
  int64_t port = 0;
  std::string port_file;
  int64_t data_port = 0;
  std::string data_host;
  bool require_encryption = false;
  AdminOptions admin;  // port 7201 for prefill, 7301 for decode
  int64_t threads = 1;
  double kv_gib = 0.5;
  double device_memory_gib = 0;
  int64_t block_tokens = 16;
  std::string kv_dtype = "auto";
  int64_t max_positions = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_batch_sequences = 0;
  int64_t max_slice_tokens = 0;
  int64_t max_requests = 256;
  double drain_grace_s = 20;
  double keep_prompts_s = 60;
  double step_timeout_s = 0;
  double probe_interval_s = 10;
  double lease_s = 2;
  double formation_own_share = 0;
  std::string handoff = "one-sided";
  std::string handoff_path = "auto";
  std::string comm_path = "auto";
  int64_t handoff_staging_buffers = 4;
  int64_t handoff_staging_bytes = 8 << 20;
  TracingOptions tracing;
  std::string log_level = "info";

  bool IsCuda() const { return device.rfind("cuda", 0) == 0; }
  // What 0 stands for is the device's: enough for its products to run at their full rate.
  int64_t BatchTokens() const { return Given(max_batch_tokens, IsCuda() ? 8192 : 512); }
  int64_t BatchSequences() const { return Given(max_batch_sequences, IsCuda() ? 256 : 64); }
  // A step of a large model on a few cores takes minutes.
  double StepTimeoutS() const { return step_timeout_s > 0 ? step_timeout_s : IsCuda() ? 60 : 600; }
  int64_t SliceTokens() const {
    return std::min(Given(max_slice_tokens, IsCuda() ? 8192 : 512), BatchTokens());
  }

  // The flags of the one role or the other.
  void RegisterPrefill(FlagSet* flags);
  void RegisterDecode(FlagSet* flags);

 private:
  static int64_t Given(int64_t flag, int64_t otherwise) { return flag > 0 ? flag : otherwise; }
};

}  // namespace skein::services
