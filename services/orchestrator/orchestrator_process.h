// The orchestrator as a whole: gRPC server, admin pages, shell.
#pragma once

#include "absl/status/status.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// Runs until SIGTERM or SIGINT.
absl::Status RunOrchestrator(const OrchestratorOptions& options);

}  // namespace skein::services
