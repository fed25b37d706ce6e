#include "scheduler/worker/prefill/prefill_ends.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

using Phase = PrefillRequest::Phase;

namespace {

FinishReason ReasonOf(const absl::Status& status) {
  if (status.ok()) return FinishReason::kStop;
  return absl::IsCancelled(status) ? FinishReason::kCancelled : FinishReason::kError;
}

}  // namespace

void PrefillEnds::EndThose(const std::function<bool(const Request&)>& which,
                           const absl::Status& status) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : parts_.requests->all()) {
    if (which(request)) ids.push_back(id);
  }
  for (const RequestId id : ids) End(parts_.requests->at(id), status);
}

void PrefillEnds::End(Request& request, const absl::Status& status) {
  if (request.IsEnding()) return;
  const RequestId id = request.id();
  if (const SpPlan* plan = parts_.sp_plans->Find(id)) {
    // The other members may be in its next piece already, or will come; who joins later may wait in
    // the group of a later chunk.
    const std::optional<AbortStep> abort = parts_.steps->Abort(id, *parts_.now);
    if (abort.has_value()) parts_.effects->push_back(*abort);
    for (BreakGroup& group : plan->GroupsAhead(/*skip_next=*/abort.has_value())) {
      parts_.effects->push_back(std::move(group));
    }
    parts_.sp_plans->Stop(id);
  }
  request.end_status = status;
  // A member of an SP plan may not have opened its transfer yet.
  const bool expected = !request.IsPlain() && request.phase > Phase::kHolding;
  request.must_tell_abort = parts_.kv_out->Has(id) || expected;
  parts_.requests->SetPhase(request, Phase::kEnding);
  parts_.place_calls->Forget(id);
  ++failed_;
  MaybeLeave(request);
}

// Blocks are given back only when neither the engine nor the handoff sender touches them any more;
// until then the request stays, ending.
void PrefillEnds::MaybeLeave(Request& request) {
  const RequestId id = request.id();
  if (!request.IsEnding()) return;
  if (!parts_.steps->InFlight(id))
    parts_.steps->Remove(id);  // no further slice while the handoff stops
  parts_.kv_out->Stop(id);
  if (parts_.kv_out->Writing(id) || parts_.steps->InFlight(id)) return;
  if (request.must_tell_abort) {
    const InstanceId writer =
        request.writer == InstanceId{} ? parts_.membership->instance() : request.writer;
    parts_.effects->push_back(CallAbort{
        request.placed.endpoint,
        {id, request.epoch, request.end_status, writer, parts_.membership->identity().incarnation},
        rpc_timeout_us_,
        request.placed.permit});
  }
  Erase(request, absl::Status(request.end_status));
}

void PrefillEnds::Erase(Request& request, const absl::Status& status, const HandoffPath& path) {
  const RequestId id = request.id();
  parts_.membership->Ended({.id = id,
                            .epoch = request.epoch,
                            .reason = ReasonOf(status),
                            .status = status,
                            .engine_failed = parts_.steps->engine().FailedUnder(id),
                            .handoff = path,
                            .ring = request.ring,
                            .ring_broken = request.ring_broken},
                           request.deadline_us);
  tombstones_.Put(id, request.epoch, status.ok());
  committed_ += status.ok();
  if (request.started_us != kNever) parts_.effects->push_back(ReleaseSequence{id, request.epoch});
  parts_.steps->Remove(id);
  parts_.kv_out->Forget(id);
  parts_.sp_plans->Forget(id);
  parts_.place_calls->Forget(id);
  if (MayKeep(request)) {
    parts_.requests->EraseAndKeep(id, *parts_.now + keep_us_);
  } else {
    parts_.requests->Erase(id);
  }
  left_.push_back(id);
}

// A failed engine may still write to any block.
bool PrefillEnds::MayKeep(const Request& request) const {
  return keep_us_ > 0 && request.IsPlain() && request.computed && parts_.steps->engine().ok();
}

void PrefillEnds::EndWaiting(RequestId id, Epoch epoch, const absl::Status& status) {
  ++failed_;
  parts_.membership->Ended({id, epoch, ReasonOf(status), status});
}

absl::Status PrefillEnds::HandedBack() {
  return absl::UnavailableError("the instance is draining and had not begun the request");
}

absl::Status PrefillEnds::CheckInvariants() const {
  const auto violated = [](int number, RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("PrefillCore ", number, ": ", ToString(id), " ", what));
  };
  for (const auto& [id, request] : parts_.requests->all()) {
    const bool touched = parts_.steps->InFlight(id) || parts_.kv_out->Writing(id);
    if (touched && request.blocks == nullptr) return violated(2, id, "is in use without blocks");
    if (request.IsEnding() && !touched) return violated(4, id, "is ending but not in use");
  }
  return tombstones_.CheckInvariants();
}

}  // namespace skein::scheduler
