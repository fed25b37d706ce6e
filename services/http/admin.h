// The admin pages of every Skein process: probes, version, metrics, debug.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/http/routes.h"

namespace skein::services::http {

struct AdminPages {
  std::string service;  // "router", ...
  std::string version;
  // OK: ready for work. Otherwise the message says what is missing. Called on a server thread.
  std::function<absl::Status()> ready;
  // OK: the process works or is starting. Otherwise it should be ended; the message gives the
  // reason. Called on a server thread; must not block. Empty: always OK.
  std::function<absl::Status()> live;
  // The Prometheus text format. Empty: no /metrics.
  std::function<std::string()> metrics;
  // The whole answer of /metrics, for a process that serves several formats. Empty: `metrics`
  // counts.
  PageFn metrics_page = nullptr;
};

// GET /livez      200 as long as the process works, also while it drains; else 503 with the reason
// GET /readyz     200, or 503 with the reason
// GET /health     as /readyz
// GET /ping       as /readyz; POST too (SageMaker, vLLM)
// GET /version    {"version": ..., "service": ...}
// GET /metrics
void AddAdminPages(const AdminPages& pages, Routes* routes);

// GET `path`: 200 with the JSON text from `json`.
void AddJsonPage(std::string path, std::function<std::string()> json, Routes* routes);

}  // namespace skein::services::http
