// The orchestrator as a whole: gRPC server, admin pages, shell.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// Runs until SIGTERM or SIGINT. `planning` is LoadPlanning's; SIGHUP reads its tables anew.
// `formations` is FormationsFrom's.
absl::Status RunOrchestrator(const OrchestratorOptions& options,
                             std::shared_ptr<const scheduler::PlanningConfig> planning,
                             const scheduler::orchestrator::FormationConfig& formations);

}  // namespace skein::services
