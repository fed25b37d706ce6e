// Metrics of every process: Prometheus's standard process_* names, the version, and what
// becomes of the certificate of --tls-dir.
#pragma once

#include <string>

#include "services/metrics/metrics.h"

namespace skein::services {

// Linux only. Any thread.
class ProcessMetrics {
 public:
  // `metrics` outlives this. `service`: "router", "prefill-worker" ...
  ProcessMetrics(const std::string& service, Metrics* metrics);

  // Updates the metrics; reads four small files of /proc.
  void Refresh();

 private:
  prometheus::Counter& cpu_seconds_;
  prometheus::Gauge& resident_bytes_;
  prometheus::Gauge& virtual_bytes_;
  prometheus::Gauge& open_fds_;
  prometheus::Gauge& max_fds_;
  prometheus::Counter& lost_log_lines_;
  prometheus::Gauge& certificate_expires_s_;
  prometheus::Counter& reloads_done_;
  prometheus::Counter& reloads_failed_;
};

}  // namespace skein::services
