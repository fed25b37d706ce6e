// Flags of the router.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/admin/admin_server.h"
#include "services/flags/flags.h"
#include "services/tracing/options.h"

namespace skein::services {

struct RouterOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string port_file;
  std::string advertise;
  AdminOptions admin{.port = 8001};
  bool console = true;
  std::vector<std::string> console_hosts;
  std::string record_trace;
  std::string orchestrator = "127.0.0.1:7100";  // or several, with commas
  std::vector<std::string> models;
  double wait_for_model_s = 0;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  std::string api_key_file;
  std::string tenants_file;
  int64_t tenant_routers = 0;  // 0: as many as the orchestrator knows
  double key_reload_s = 0;
  std::string admin_key_file;
  std::string audit_log;
  int64_t audit_log_bytes = 0;
  std::string log_level = "info";
  TracingOptions tracing;

  int64_t max_body_bytes = 8 << 20;
  int64_t max_held_bytes = 0;  // 0: a quarter of the memory
  int64_t max_file_bytes = 200'000'000;
  int64_t max_header_bytes = 32 << 10;
  int64_t max_connections = 8192;
  int64_t max_prompt_tokens = 0;
  int64_t max_choices = 128;
  int64_t default_max_tokens = 2048;
  bool strict_api = false;
  int64_t max_streams = 2048;
  int64_t max_queued = 1024;
  int64_t job_lines_max = 256;
  double request_deadline_s = 600;
  double resume_wait_s = 30;
  double idle_timeout_s = 75;
  double read_timeout_s = 30;
  double write_timeout_s = 30;
  double drain_grace_s = 30;

  // Of each cell, as CellOrchestrators takes them.
  std::vector<std::string> orchestrators() const;

  // Parsing also checks that the values go together. The options stay where they are meanwhile.
  void Register(FlagSet* flags);
};

}  // namespace skein::services
