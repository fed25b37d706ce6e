// From the orchestrator's flags to how its core decides about formations.
#pragma once

#include "absl/status/statusor.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// What gains is what --profile says of formations; without it nothing is bound for load, nor if it
// cannot be read, which LoadPlanning tells. INVALID_ARGUMENT names the flag.
absl::StatusOr<scheduler::orchestrator::FormationConfig> FormationsFrom(
    const OrchestratorOptions& options);

}  // namespace skein::services
