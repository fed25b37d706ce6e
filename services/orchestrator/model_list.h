// Which models the cluster's instances serve.
#pragma once

#include "proto/orchestrator.pb.h"
#include "scheduler/orchestrator/orchestrator_core.h"

namespace skein::services {

// Every model of a live instance that does not drain, by name; also one that cannot answer, since
// it has instances of one role only.
void FillModels(const scheduler::OrchestratorSnapshot& snapshot, v1::ListModelsResponse* out);

}  // namespace skein::services
