// What Status and ListModels answer.
#pragma once

#include "absl/status/status.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/orchestrator/orchestrator_core.h"

namespace skein::services {

// Every model of a live instance that does not drain, by name; also one that cannot answer, since
// it has instances of one role only. `totals`: as of OrchestratorCore::Totals, or a whole snapshot.
void FillModels(const scheduler::OrchestratorSnapshot& totals, v1::ListModelsResponse* out);

// All but the version and the uptime. `invariants`: what the last check found. `now`: of the clock
// that the core was given.
void FillStatus(const scheduler::OrchestratorSnapshot& snapshot, const absl::Status& invariants,
                scheduler::TimeUs now, v1::StatusResponse* out);

}  // namespace skein::services
