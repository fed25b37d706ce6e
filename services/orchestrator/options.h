// Flags of the orchestrator.
#pragma once

#include <cstdint>
#include <string>

#include "services/admin/admin_server.h"
#include "services/flags/flags.h"
#include "services/tracing/options.h"

namespace skein::services {

struct OrchestratorOptions {
  std::string host = "127.0.0.1";
  int64_t port = 7100;
  std::string port_file;
  AdminOptions admin{.port = 7101};
  int64_t max_requests = 4096;
  double instance_lease_s = 3;
  double instance_silent_s = 1.5;
  double request_deadline_s = 600;
  double slow_factor = 2;
  double slow_suspect_factor = 5;
  double slow_step_min_s = 0.05;
  double slow_share = 0.25;
  double slow_aside_s = 10;
  double hung_step_s = 10;
  std::string state_dir;
  std::string store = "none";
  std::string etcd = "127.0.0.1:2379";
  std::string cell = "default";
  std::string advertise;  // empty: host
  double leader_lease_s = 1;
  std::string profile;
  std::string policy = "tetris";
  int64_t node_size = 8;
  std::string improvement_rate = "auto";
  std::string prefill_tp = "auto";
  double retune_hours = 24;
  std::string formations = "auto";
  double formation_bind_sequences = 1;
  double formation_release_sequences = 4;
  double formation_release_waiting_tokens = 0;
  double formation_dwell_s = 10;
  double formation_min_gain = 1.05;
  int64_t formation_priority = -1;  // as in the API: lower is more urgent
  std::string formation_own = "share";
  std::string formation_own_priority = "soft";
  double formation_own_pause_s = 60;
  double formation_wait_s = 10;
  std::string jobs_dir;  // empty: a folder in state_dir, if there is one; "none": no jobs
  int64_t jobs_max = 1000;
  int64_t jobs_file_mib = 200;
  int64_t jobs_lines_max = 1024;
  double formation_share_lines = 64;
  int64_t shared_batch_threshold = 0;  // 0: none
  double shared_mode_dwell_s = 60;
  TracingOptions tracing;
  std::string log_level = "info";

  void Register(FlagSet* flags);
};

}  // namespace skein::services
