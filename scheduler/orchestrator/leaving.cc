// What moves off an instance that is still here: it drains, hangs, or is slow beside its peers.
#include <vector>

#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler::orchestrator {

// The instance takes no more chunks of an incomplete plan: those that it has are made anew when it
// stops serving. Afterwards it gets none.
void WorkerSide::LeaveDraining(const Instance& instance, TimeUs now) {
  if (instance.Serves()) {
    leaving_.erase(instance.id);
    return;
  }
  if (!leaving_.insert(instance.id).second) return;
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> unfinished;
  for (const auto& [id, placement] : instance.placed) {
    const Request& request = parts_.requests->At(id);
    if (request.rolling_key != 0 && request.PlannedTokens() < PromptTokens(*request.spec)) {
      unfinished.push_back(id);
    }
  }
  for (const RequestId id : unfinished) {
    parts_.replanner->Replan(parts_.requests->At(id),
                             absl::UnavailableError("a prefill instance is leaving"), now);
  }
}

// A step of the instance does not end. The requests that it has not begun are planned anew, as soon
// as another instance can take them. That does not count as a failure of these requests.
void WorkerSide::LeaveSuspect(const Instance& instance, TimeUs now) {
  const WorkerIdentity& identity = instance.identity;
  if (identity.role != Role::kPrefill) return;
  if (!instance.Suspect()) {
    left_suspects_.erase(instance.id);
    return;
  }
  const bool others = parts_.registry->Counts(identity.model, identity.role).placeable > 0;
  if (!others || !left_suspects_.insert(instance.id).second) return;
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> queued;
  for (const auto& [id, placement] : instance.placed) {
    if (!parts_.requests->At(id).MayHaveBegun()) queued.push_back(id);
  }
  for (const RequestId id : queued) {
    parts_.replanner->GiveUpPlan(
        parts_.requests->At(id),
        absl::UnavailableError("a step of a prefill instance does not end"), now);
  }
}

}  // namespace skein::scheduler::orchestrator
