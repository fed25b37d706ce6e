// DecodeEnds: how requests end in a decode-worker: each accepted (id, epoch) once, told to the
// orchestrator, and its blocks given back. Owns what is remembered of ended requests, their counts,
// and the requests that the present event touched. Part of DecodeCore, and used only on its thread.
// A call costs O(log requests), but for EndAll.
//
// Invariants (CheckInvariants names them, by DecodeCore's numbers):
//   5. Every accepted (id, epoch) ends exactly once; what has ended is kept for a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_events.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/expected_streams.h"
#include "scheduler/worker/decode/running_batch.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step_loop.h"
#include "scheduler/worker/tombstones.h"

namespace skein::scheduler {

class DecodeEnds {
 public:
  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    ExpectedStreams* expected_streams = nullptr;
    RunningBatch* running = nullptr;
    BoundGroup* group = nullptr;
    Membership* membership = nullptr;
    const StepLoop* steps = nullptr;
    std::vector<DecodeEffect>* effects = nullptr;
  };
  // `ended` is called after the end of each request, or of each of its epochs.
  DecodeEnds(const Parts& parts, std::function<void(RequestId)> ended)
      : parts_(parts), ended_(std::move(ended)) {}

  // The record stays until its blocks are safe and its router has heard the end (ForgetIfOver). An
  // answer that is whole is no end for the orchestrator before a router attaches: else nobody would
  // plan it anew if none does. One that has ended already is told only, if it was not.
  void End(DecodeSequence& sequence, FinishReason reason, const absl::Status& status);
  // Tells the orchestrator how it has ended, once.
  void Tell(DecodeSequence& sequence) { Tell(sequence, sequence.reason, sequence.status); }
  // All of them. An answer that is whole may still be taken until the process ends.
  void EndAll(const absl::Status& status);
  // One without blocks, which was announced.
  void EndAnnounced(RequestId id, Epoch epoch, FinishReason reason, const absl::Status& status);
  // The request has ended here under this epoch and all older ones: what comes under them is too
  // late, and routers that attached ahead of its blocks hear `status`.
  void Bury(RequestId id, Epoch epoch, const absl::Status& status, bool committed = false);
  // A router's call does not get the tokens.
  void Refuse(const AttachCalled& attach, absl::Status status);
  const Tombstones& tombstones() const { return tombstones_; }

  // It is in no further step; gives the blocks back, unless a step in flight reads them.
  void Release(const DecodeSequence& sequence);
  // Erases a sequence with neither blocks nor a stream to serve. Unknown ones are fine.
  void ForgetIfOver(RequestId id);
  // This event touched it: what waits for its blocks or its announcement is to be looked at.
  void Touch(RequestId id) { touched_.push_back(id); }
  std::vector<RequestId> TakeTouched() { return std::exchange(touched_, {}); }

  uint64_t finished() const { return finished_; }  // with stop or length
  uint64_t failed() const { return failed_; }      // sequences that ended otherwise
  absl::Status CheckInvariants() const;

 private:
  void Tell(DecodeSequence& sequence, FinishReason reason, const absl::Status& status);
  static TimeUs PlannedAgainUntil(const DecodeSequence& sequence);  // at most; 0: not at all

  const Parts parts_;
  const std::function<void(RequestId)> ended_;
  Tombstones tombstones_;
  std::vector<RequestId> touched_;
  uint64_t finished_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace skein::scheduler
