// A worker opens a stream: takes over the state that it reports. For a new instance nothing is
// placed there, but requests may have ended in its process before it was given up.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {
namespace {

absl::Status StreamBroke(InstanceId id) {
  return absl::UnavailableError(absl::StrCat("the stream to instance ", id.value, " broke"));
}

}  // namespace

// Ended requests come first. This and each later step may end or move other requests, so a request
// is used only if it still exists under its earlier epoch.
void OrchestratorCore::Impl::Resync(InstanceId id, const RegisterRequest& hello) {
  const Instance::Compared compared = registry_.Find(id)->CompareHeld(hello.held);
  for (const EndedRequest& ended : hello.ended) TakeEnded(*registry_.Find(id), ended);
  for (const HeldRequest& held : compared.held) {
    if (Request* request = Find(held.id, held.epoch)) SendAgain(*request, id, held);
  }
  for (const HeldRequest& missing : compared.missing) {
    if (Request* request = Find(missing.id, missing.epoch)) TakeMissing(*request, id);
  }
  for (const RequestId request_id : abandoned_.At(id)) {
    const Epoch left = abandoned_.EpochOf(request_id);
    const bool holds = std::any_of(hello.held.begin(), hello.held.end(), [&](const auto& held) {
      return held.id == request_id && held.epoch <= left;
    });
    if (!holds) HasLeft(requests_.At(request_id), id);
  }
}

// It holds the request: whatever else was sent about it may be lost.
void OrchestratorCore::Impl::SendAgain(Request& request, InstanceId id, const HeldRequest& held) {
  if (request.decode == id) {
    // It may not have heard of all writers.
    if (request.sequence_parallel) sender_.Announce(request);
    if (held.opened) Opened(request);
    return;
  }
  Member* member = request.MemberAt(id);
  if (member == nullptr) return;
  if (request.sequence_parallel && held.chunks_known < request.chunks.size()) {
    return GiveUpPlan(request, StreamBroke(id));  // the last Assign was lost
  }
  TakeProgress(request, *member, held);
  if (!member->accepted()) return Accepted(request, *member);  // only the answer was lost
  const bool open = request.sequence_parallel && request.state == State::kPlaced;
  if (open && request.AllAccepted()) sender_.Start(request, *member);
}

// The worker neither holds the request nor reported its end: the request never arrived there.
void OrchestratorCore::Impl::TakeMissing(Request& request, InstanceId id) {
  const absl::Status lost = StreamBroke(id);
  if (Member* member = request.MemberAt(id)) {
    const bool accepted = member->accepted();
    member->phase = Member::Phase::kLacksPlan;
    return accepted ? Replan(request, lost) : GiveUpPlan(request, lost);
  }
  if (request.decode != id) return;
  if (request.state != State::kPlaced) return sender_.Announce(request);  // it was lost
  if (request.HasMembersHere()) return Replan(request, lost);
  TakeFromDecode(request);
  Fail(request, lost);
}

}  // namespace skein::scheduler
