#include "scheduler/worker/decode/decode_ends.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

using Phase = DecodeSequence::Phase;
using Stream = DecodeSequence::Stream;

void DecodeEnds::End(DecodeSequence& sequence, FinishReason reason, const absl::Status& status) {
  if (sequence.phase == Phase::kEnded) return Tell(sequence, reason, status);
  const bool unattached = sequence.stream == Stream::kUnattached;
  const bool bound = sequence.phase == Phase::kBound;
  (status.ok() ? finished_ : failed_) += 1;
  Bury(sequence.id(), sequence.epoch, status, sequence.committed);
  sequence.engine_failed = parts_.steps->engine().FailedUnder(sequence.id());
  parts_.sequences->End(sequence, reason, status);
  if (!status.ok() || !unattached) Tell(sequence, reason, status);
  if (bound) {
    parts_.group->Leave(sequence.id(), sequence.epoch, parts_.clock->now);
    Touch(sequence.id());
  } else {
    Release(sequence);
  }
  ended_(sequence.id());
}

void DecodeEnds::Tell(DecodeSequence& sequence, FinishReason reason, const absl::Status& status) {
  if (std::exchange(sequence.told, true)) return;
  parts_.membership->Ended({.id = sequence.id(),
                            .epoch = sequence.epoch,
                            .reason = reason,
                            .status = status,
                            .engine_failed = sequence.engine_failed,
                            .unclaimed = sequence.unclaimed},
                           PlannedAgainUntil(sequence));
}

// A request whose router has tokens ends for its client.
TimeUs DecodeEnds::PlannedAgainUntil(const DecodeSequence& sequence) {
  if (!sequence.NoTokenSent()) return 0;
  const TimeUs budget = sequence.spec->deadline_us;
  return budget > 0 ? sequence.arrived_us + budget : kNever;
}

void DecodeEnds::EndAll(const absl::Status& status) {
  for (const auto& [id, known] : parts_.sequences->all()) {
    DecodeSequence& sequence = parts_.sequences->at(id);
    if (sequence.phase == Phase::kEnded) {
      Tell(sequence);
    } else {
      End(sequence, FinishReason::kError, status);
    }
  }
}

void DecodeEnds::EndAnnounced(RequestId id, Epoch epoch, FinishReason reason,
                              const absl::Status& status) {
  Bury(id, epoch, status);
  parts_.membership->Ended({.id = id, .epoch = epoch, .reason = reason, .status = status});
  Touch(id);
  ended_(id);
}

void DecodeEnds::Bury(RequestId id, Epoch epoch, const absl::Status& status, bool committed) {
  tombstones_.Put(id, epoch, committed);
  for (const ExpectedStreams::Expected& one : parts_.expected_streams->TakeUpTo(id, epoch)) {
    Refuse(AttachCalled{.call = one.call, .id = id, .epoch = one.epoch},
           status.ok() ? absl::CancelledError("the request has ended") : status);
  }
}

void DecodeEnds::Refuse(const AttachCalled& attach, absl::Status status) {
  parts_.effects->push_back(EndStream{.call = attach.call,
                                      .id = attach.id,
                                      .epoch = attach.epoch,
                                      .reason = FinishReason::kError,
                                      .status = std::move(status),
                                      .prompt_logprobs = ""});
}

void DecodeEnds::Release(const DecodeSequence& sequence) {
  const RequestId id = sequence.id();
  parts_.running->Remove(id);
  if (parts_.running->InFlight(id)) return;
  if (sequence.committed) parts_.effects->push_back(ReleaseSequence{id, sequence.epoch});
  parts_.kv_in->Release(id, parts_.clock->Listening());
  Touch(id);
}

void DecodeEnds::ForgetIfOver(RequestId id) {
  const DecodeSequence* sequence = parts_.sequences->Find(id);
  const bool over = sequence != nullptr && sequence->phase == Phase::kEnded &&
                    sequence->stream == Stream::kClosed && !parts_.kv_in->Has(id);
  if (over) parts_.sequences->Erase(id);
}

absl::Status DecodeEnds::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("DecodeCore 5: ", ToString(id), " ", what));
  };
  for (const auto& [id, sequence] : parts_.sequences->all()) {
    const bool ended = sequence.phase == Phase::kEnded;
    const bool whole = ended && sequence.status.ok();
    if (ended && !sequence.told && (!whole || sequence.stream != Stream::kUnattached)) {
      return violated(id, "has ended, but the orchestrator was not told");
    }
    const bool without_blocks =
        sequence.phase == Phase::kPreempted || sequence.phase == Phase::kBound;
    if (parts_.kv_in->Has(id) || without_blocks) continue;
    if (!ended) return violated(id, "has not ended but holds no blocks");
    if (sequence.stream == Stream::kClosed) {
      return violated(id, "is kept although it has ended everywhere");
    }
  }
  return tombstones_.CheckInvariants();
}

}  // namespace skein::scheduler
