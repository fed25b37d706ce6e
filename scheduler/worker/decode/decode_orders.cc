#include "scheduler/worker/decode/decode_orders.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

using Phase = DecodeSequence::Phase;

// ---- announcements ----

void DecodeOrders::On(const AnnounceCalled& event) {
  const AnnounceRequest& request = event.request;
  const RequestId id = request.spec->id;
  Excuse(request);
  parts_.ends->Touch(id);
  const DecodeSequence* known = parts_.sequences->Find(id, request.epoch);
  if (known != nullptr && known->phase == Phase::kReceiving) {
    parts_.kv_in->AddWriters(id, request.writers);
    return TakeEarlyAborts(request);
  }
  // A whole answer that no router has taken yet is no end: this announcement is a duplicate.
  if ((known != nullptr && !known->told) || !MayAnnounce(request)) return;
  const TimeUs budget = request.spec->deadline_us;
  announced_.Add(request, event.checked,
                 parts_.clock->now + (budget > 0 ? budget : request_deadline_us_));
  parts_.membership->Holds({.id = id, .epoch = request.epoch, .opened = false});
  if (request.prompt_of.has_value()) return AwaitPrompt(id, *request.prompt_of);
  TakeEarlyAborts(request);
}

void DecodeOrders::Excuse(const AnnounceRequest& request) {
  if (excused_.size() + request.excused.size() > kExcusedMax) excused_.clear();
  excused_.insert(request.excused.begin(), request.excused.end());
}

// Of the writers that it names.
void DecodeOrders::TakeEarlyAborts(const AnnounceRequest& request) {
  for (const Incarnation writer : request.writers) {
    const auto abort = early_aborts_.Take(request.spec->id, request.epoch, writer);
    if (abort.has_value()) On(AbortCalled{*abort});
  }
}

// Ends an older epoch of the request, wherever it stands.
bool DecodeOrders::MayAnnounce(const AnnounceRequest& request) {
  const RequestId id = request.spec->id;
  const Announced* announced = announced_.Find(id);
  DecodeSequence* sequence = parts_.sequences->Find(id);
  const bool stale = (announced != nullptr && announced->epoch > request.epoch) ||
                     (sequence != nullptr && sequence->epoch > request.epoch);
  if (stale || parts_.ends->tombstones().Covers(id, request.epoch)) {
    parts_.membership->Ended({.id = id,
                              .epoch = request.epoch,
                              .reason = FinishReason::kError,
                              .status = absl::UnavailableError("epoch: this plan has ended")});
    return false;
  }
  const absl::Status anew = absl::CancelledError("the request was planned again");
  if (sequence != nullptr) parts_.ends->End(*sequence, FinishReason::kCancelled, anew);
  if (announced != nullptr && announced->epoch < request.epoch) {
    EndAnnounced(id, FinishReason::kCancelled, anew);
  }
  return true;
}

// REQUIRES: it is announced.
void DecodeOrders::AwaitPrompt(RequestId id, RequestId from) {
  const DecodeSequence* sequence = parts_.sequences->Find(from);
  const bool coming =
      sequence != nullptr ? sequence->phase == Phase::kReceiving : announced_.Find(from) != nullptr;
  if (coming && from != id) return;
  EndAnnounced(id, FinishReason::kError,
               absl::UnavailableError(
                   "prompt_of: this instance neither has nor expects the KV of that request"));
}

void DecodeOrders::On(const WithdrawCalled& event) {
  const WithdrawRequest& request = event.request;
  if (!parts_.membership->CheckEpoch(request.epoch).ok()) return;
  if (announced_.Has(request.id, request.epoch)) {
    Withdraw(request.id, request.epoch);
  } else if (DecodeSequence* sequence = parts_.sequences->Find(request.id, request.epoch)) {
    parts_.ends->End(*sequence, FinishReason::kError,
                     absl::UnavailableError("the request was placed at another instance"));
  }
}

void DecodeOrders::Withdraw(RequestId id, Epoch epoch) {
  announced_.Take(id);
  parts_.membership->Gone(id, epoch);
  parts_.group->Dismiss(id, parts_.clock->now);  // ranks may keep blocks for its KV
  EndSharers(id);
}

void DecodeOrders::CancelUnknown(const HeldRequest& held) {
  if (held.opened)
    return CancelUpTo(held.id, held.epoch, "the orchestrator does not know the request");
  if (announced_.Has(held.id, held.epoch)) Withdraw(held.id, held.epoch);
}

// ---- ends ----

void DecodeOrders::EndAnnounced(RequestId id, FinishReason reason, const absl::Status& status) {
  parts_.ends->EndAnnounced(id, announced_.Take(id).epoch, reason, status);
}

void DecodeOrders::EndSharers(RequestId from) {
  for (const RequestId id : announced_.SharersOf(from)) {
    if (announced_.Find(id) == nullptr) continue;  // ended with another one
    EndAnnounced(id, FinishReason::kError,
                 absl::UnavailableError("prompt_of: that request has ended"));
  }
}

void DecodeOrders::On(const CancelCalled& event) {
  if (!parts_.membership->CheckEpoch(event.request.epoch).ok()) return;
  if (event.request.unless_claimed) return CancelUnclaimed(event.request);
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

// A router that has attached lives, or its stream will break, and only this process can tell.
void DecodeOrders::CancelUnclaimed(const CancelRequest& cancel) {
  DecodeSequence* sequence = parts_.sequences->Find(cancel.id, cancel.epoch);
  if (sequence == nullptr || sequence->stream != DecodeSequence::Stream::kUnattached) return;
  parts_.sequences->GiveUpUnclaimed(*sequence);
  parts_.ends->Touch(cancel.id);
  parts_.ends->End(*sequence, FinishReason::kError, absl::CancelledError(cancel.why));
}

void DecodeOrders::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  DecodeSequence* sequence = parts_.sequences->Find(id);
  if (sequence != nullptr && sequence->epoch <= epoch) {
    parts_.ends->End(*sequence, FinishReason::kCancelled, absl::CancelledError(why));
  }
  const Announced* announced = announced_.Find(id);
  if (announced != nullptr && announced->epoch <= epoch) {
    EndAnnounced(id, FinishReason::kCancelled, absl::CancelledError(why));
  }
  parts_.ends->Bury(id, epoch, absl::CancelledError(why));
  parts_.ends->Touch(id);
}

// From a process that the request's plan does not name as a writer.
bool DecodeOrders::IsStray(const AbortRequest& abort) const {
  const DecodeSequence* sequence = parts_.sequences->Find(abort.id);
  if (sequence != nullptr && sequence->epoch == abort.epoch) {
    return sequence->phase == Phase::kReceiving &&
           !parts_.kv_in->IsNamed(abort.id, abort.incarnation);
  }
  const Announced* announced = announced_.Find(abort.id);
  return announced != nullptr && announced->epoch == abort.epoch &&
         announced->writers.count(abort.incarnation) == 0;
}

void DecodeOrders::On(const AbortCalled& event) {
  const AbortRequest& abort = event.request;
  if (!parts_.membership->CheckEpoch(abort.epoch).ok() || IsStray(abort)) return;
  if (abort.unpermitted && !IsExcused(abort.incarnation)) return;
  parts_.kv_in->WriterStopped(abort.id, abort.epoch, abort.prefill, parts_.clock->Listening());
  parts_.ends->Touch(abort.id);
  if (DecodeSequence* sequence = parts_.sequences->Find(abort.id, abort.epoch)) {
    if (sequence->phase != Phase::kReceiving) return;  // its writers have done their part
    parts_.ends->End(*sequence, FinishReason::kError,
                     abort.reason.ok() ? absl::InternalError("aborted") : abort.reason);
  } else if (announced_.Has(abort.id, abort.epoch)) {
    EndAnnounced(abort.id, FinishReason::kError, abort.reason);
  } else if (!parts_.ends->tombstones().Covers(abort.id, abort.epoch)) {
    early_aborts_.Add(abort);
  }
}

void DecodeOrders::RunTimers() {
  while (const std::optional<RequestId> id = announced_.TakeOver(parts_.clock->now)) {
    EndAnnounced(*id, FinishReason::kError,
                 absl::DeadlineExceededError("the request's deadline passed before its prefill"));
  }
}

// ---- what it shows ----

KvIn::Gone DecodeOrders::WhyGone(RequestId id, Epoch epoch) const {
  const DecodeSequence* sequence = parts_.sequences->Find(id);
  if (sequence != nullptr && sequence->epoch == epoch &&
      (sequence->phase == Phase::kPreempted || sequence->phase == Phase::kBound)) {
    return {absl::FailedPreconditionError("the request is already committed"), true};
  }
  const Announced* announced = announced_.Find(id);
  if ((sequence != nullptr && sequence->epoch > epoch) ||
      (announced != nullptr && announced->epoch > epoch)) {
    return {absl::FailedPreconditionError("epoch: stale"), false};
  }
  const Tombstones& tombstones = parts_.ends->tombstones();
  if (tombstones.Covers(id, epoch)) {
    return {absl::CancelledError("the request has ended"), tombstones.Committed(id, epoch)};
  }
  return {absl::NotFoundError("no transfer of the request is open here"), false};
}

absl::Status DecodeOrders::CheckInvariants() const {
  if (absl::Status status = announced_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = early_aborts_.CheckInvariants(); !status.ok()) return status;
  for (const auto& [id, announced] : announced_.all()) {
    const DecodeSequence* sequence = parts_.sequences->Find(id);
    if (sequence == nullptr || sequence->phase == Phase::kEnded) continue;
    return absl::InternalError(
        absl::StrCat("DecodeCore 5: ", ToString(id), " is announced while another epoch lives"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
