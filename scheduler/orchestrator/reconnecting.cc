// A worker opens a stream: takes over the state that it reports. For a new instance nothing is
// placed there, but requests may have ended in its process before it was given up.
#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler::orchestrator {
namespace {

absl::Status StreamBroke(InstanceId id) {
  return absl::UnavailableError(absl::StrCat("the stream to instance ", id.value, " broke"));
}

}  // namespace

// Ended requests come first. This and each later step may end or move other requests, so a request
// is used only if it still exists under its earlier epoch.
void WorkerSide::Resync(InstanceId id, const RegisterRequest& hello, TimeUs now) {
  const Instance::Compared compared = parts_.registry->Find(id)->CompareHeld(hello.held);
  for (const EndedRequest& ended : hello.ended) {
    ended_.Take(*parts_.registry->Find(id), ended, now);
  }
  for (const HeldRequest& held : compared.held) {
    if (Request* request = parts_.requests->Find(held.id, held.epoch)) {
      SendAgain(*request, id, held, now);
    }
  }
  for (const HeldRequest& missing : compared.missing) {
    if (Request* request = parts_.requests->Find(missing.id, missing.epoch)) {
      TakeMissing(*request, id, now);
    }
  }
  parts_.replanner->HasOnly(id, hello.held, now);
}

// What a predecessor had announced there and what has moved to other instances since: nothing comes
// to it there, but those that share its prompt would wait for it.
void WorkerSide::AddMoved(const Instance& instance, const std::vector<HeldRequest>& held,
                          std::vector<HeldRequest>* cancel) const {
  if (instance.identity.role != Role::kDecode) return;
  for (const HeldRequest& one : held) {
    if (one.opened || one.epoch.value >= parts_.numbers->first_epoch()) continue;
    if (parts_.requests->Find(one.id) == nullptr || instance.placed.contains(one.id)) continue;
    cancel->push_back(one);
  }
}

// It holds the request: whatever else was sent about it may be lost.
void WorkerSide::SendAgain(Request& request, InstanceId id, const HeldRequest& held, TimeUs now) {
  if (request.decode == id) {
    // It may not have heard of all writers.
    if (request.sequence_parallel) parts_.sender->Announce(request);
    parts_.explanations->NotePreemptions(held.preemptions, &request);
    if (held.opened) parts_.decode->Opened(request, now);
    return;
  }
  Member* member = request.MemberAt(id);
  if (member == nullptr) return;
  if (request.sequence_parallel && held.chunks_known < request.chunks.size()) {
    // The last Assign was lost.
    return parts_.replanner->GiveUpPlan(request, StreamBroke(id), now);
  }
  if (held.opened) parts_.decode->OpenedByLead(request, id, now);
  parts_.prefill->TakeProgress(request, *member, held, now);
  if (!member->accepted()) return parts_.prefill->Accepted(request, *member, now);  // told late
  if (PlanSender::MayStart(request)) parts_.sender->Start(request, *member);
}

// The worker neither holds the request nor reported its end: the request never arrived there.
void WorkerSide::TakeMissing(Request& request, InstanceId id, TimeUs now) {
  const absl::Status lost = StreamBroke(id);
  if (Member* member = request.MemberAt(id)) {
    const bool accepted = member->accepted();
    member->phase = Member::Phase::kLacksPlan;
    return accepted ? parts_.replanner->Replan(request, lost, now)
                    : parts_.replanner->GiveUpPlan(request, lost, now);
  }
  if (request.decode != id) return;
  if (request.state != State::kPlaced) return parts_.sender->Announce(request);  // it was lost
  if (request.HasMembersHere()) return parts_.replanner->Replan(request, lost, now);
  parts_.decode->TakeFromDecode(request);
  parts_.ends->Fail(request, lost);
}

}  // namespace skein::scheduler::orchestrator
