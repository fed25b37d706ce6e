// Instances that say nothing: what is known of them besides.
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler::orchestrator {

// A process that lives listens at its address, so one that refuses has ended; unless something
// between refuses for it, such as a firewall, and then it did so when it came. If another stream of
// it, or of its successor there, has come meanwhile, the answer is out of date. A decode instance
// that routers hear lives: only its address is not reached from here.
void WorkerSide::On(const WorkerDialled& event, TimeUs now) {
  Instance* instance = parts_.registry->Find(event.instance);
  if (instance == nullptr || instance->identity.incarnation != event.incarnation) return;
  if (event.accepted) {
    instance->reached = true;
    return;
  }
  if (!instance->reached || instance->connected() || MayMiss(*instance)) return;
  Lose(event.instance, "was lost: its stream broke, and its address refuses connections",
       Loss::kEnded, now);
}

void WorkerSide::LeaveTheSilent(TimeUs now) {
  for (const InstanceId id : parts_.registry->Silent()) {
    const Instance& instance = *parts_.registry->Find(id);
    if (MayMiss(instance)) continue;  // routers hear it
    // Those that are bound with it would wait for it, with what they run alone, too.
    const bool alone = instance.silent && parts_.registry->OthersSpoke(instance);
    if (alone) parts_.formations->FellSilent(id, now);
    if (!instance.quiet) continue;  // no other one serves
    instance.silent ? LeaveSilent(instance, now) : LeaveQuiet(instance, now);
  }
}

void WorkerSide::LeaveQuiet(const Instance& instance, TimeUs now) {
  if (instance.identity.role != Role::kPrefill) return;
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> queued;
  for (const auto& [id, placement] : instance.placed) {
    if (!parts_.requests->At(id).MayHaveBegun()) queued.push_back(id);
  }
  for (const RequestId id : queued) {
    parts_.replanner->GiveUpPlan(parts_.requests->At(id),
                                 absl::UnavailableError("a prefill instance says nothing"), now);
  }
}

// A prompt whose KV may be complete at the decode instance stays: if it is, its answer streams, and
// if it is not, the decode instance ends the transfer with its writer's lease, and says so. Plans
// that were given up before do not wait for this instance any longer, as at the end of a lease.
void WorkerSide::LeaveSilent(const Instance& instance, TimeUs now) {
  const bool prefill = instance.identity.role == Role::kPrefill;
  const absl::Status why =
      absl::UnavailableError(absl::StrCat(prefill ? "prefill" : "decode", " instance ",
                                          instance.id.value, " says nothing, and was left"));
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> held;
  held.reserve(instance.placed.size());
  for (const auto& [id, placement] : instance.placed) held.push_back(id);
  for (const RequestId id : held) {
    // The end of another one may have taken it away.
    Request* request = instance.placed.count(id) == 0 ? nullptr : parts_.requests->Find(id);
    if (request == nullptr) continue;
    const bool may_be_complete =
        prefill && request->state == State::kPlaced && request->IsPlanWhole();
    if (!may_be_complete) MoveOff(*request, instance.id, why, now);
  }
  parts_.replanner->HasLost(instance.id, Incarnation{}, now);
}

}  // namespace skein::scheduler::orchestrator
