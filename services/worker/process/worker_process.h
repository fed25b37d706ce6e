// A prefill- or decode-worker as a whole: engine, shell, gRPC server, admin pages, drain.
#pragma once

#include "absl/status/status.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {

// Run until SIGTERM or SIGINT, drain, and end within --drain-grace-s and a few seconds.
absl::Status RunPrefillWorker(const WorkerOptions& options);
absl::Status RunDecodeWorker(const WorkerOptions& options);

}  // namespace skein::services
