// RunningBatch: the sequences of a decode-worker that run or are preempted: which of them the next
// step runs, and the blocks that they take as tokens come and give up for one another
// (block_order.h says in which order, and why that ends). Owns the batch and that order. Part of
// DecodeCore, and used only on its thread. A call costs O(log sequences), or the size of a step.
//
// Invariants (CheckInvariants names them, by DecodeCore's numbers):
//   3. A sequence in a step in flight keeps its blocks.
//   6. The batch's own.
//   7. A running sequence has blocks for all its tokens, or wants one and is in no step until it
//      has it; a preempted one has none.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/vocabulary/block_range.h"
#include "scheduler/worker/decode/block_order.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

class RunningBatch {
 public:
  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    Membership* membership = nullptr;
  };
  // `launch_ahead`: NextStep is called while a step is in flight, too.
  RunningBatch(const BatchLimits& limits, bool launch_ahead, const Parts& parts)
      : launch_ahead_(launch_ahead), parts_(parts), batch_(limits) {}

  // It runs from the next step on; the KV of `computed` of its tokens is there. REQUIRES: its phase
  // is kRunning, it is not here yet, and it has a table.
  void Add(const DecodeSequence& sequence, int64_t computed);
  // A token was added to it. REQUIRES: it is here and not preempted.
  void NoteToken(const DecodeSequence& sequence);
  // It is in no further step. Unknown ones are fine.
  void Remove(RequestId id);
  // Those that wait for room to resume, in the order in which they will.
  std::vector<RequestId> Preempted() const { return order_.Preempted(); }
  std::vector<RequestId> Running() const { return order_.Running(); }  // in order of seniority
  // It gives its blocks up, and waits for room to resume. REQUIRES: it runs, in no step in flight.
  void Preempt(DecodeSequence& sequence);
  // Moves all out of the blocks that go (KvIn::MoveGoing), and preempts those that cannot be moved,
  // and others while there are too few own blocks (BlockOrder::VictimOfAll). REQUIRES: no step is
  // in flight.
  std::vector<BlockMove> LeaveGoing();
  // It waits for room to resume. REQUIRES: its phase is kPreempted, it is not here.
  void AddPreempted(const DecodeSequence& sequence);

  // Gives blocks to those that want one, and resumes preempted ones that have room. While no step
  // is in flight, others may be preempted for them: a preempted one gives its blocks up at once, so
  // it must be in no step. False: some still want one; no step may be launched ahead then.
  bool GrowTables();
  // What the next step runs, as if all in flight went well; it is in flight from now on, unless it
  // is empty. A sequence whose last token by max_tokens it samples is in no step behind it.
  // REQUIRES: at most one step is in flight.
  std::vector<StepSequence> NextStep();
  void EndStep();  // the first of the steps in flight has ended
  bool InFlight() const { return batch_.InFlight(); }
  bool InFlight(RequestId id) const { return batch_.InFlight(id); }

  // So many free blocks are kept for the bound group's sequences (BoundGroup::wanted_blocks), until
  // told something else.
  void LeaveToGroup(int64_t blocks) { left_to_group_ = blocks; }
  // OK: a request may enter that takes so many blocks. RESOURCE_EXHAUSTED: sequences that are here
  // wait for blocks, or those that are free are kept for them or for the group.
  absl::Status MayEnter(int64_t blocks) const;
  int64_t ClaimedBlocks() const;  // free ones that MayEnter keeps
  bool SomeWaitForBlocks() const {
    return order_.FirstWanting().has_value() || order_.FirstPreempted().has_value();
  }
  // That the next step would run, if all have blocks.
  int64_t StepTokens() const { return batch_.StepTokens(); }
  int64_t PendingPromptTokens() const { return batch_.PendingPromptTokens(); }
  uint64_t preemptions() const { return preemptions_; }
  uint64_t recomputed_tokens() const { return recomputed_tokens_; }  // by resumed sequences

  absl::Status CheckInvariants() const;

 private:
  using Phase = DecodeSequence::Phase;

  void AddToBatch(const DecodeSequence& sequence, int64_t known, int64_t computed);
  int64_t TokensAhead(const DecodeSequence& sequence) const;
  int64_t Headroom() const;
  int64_t BlocksOf(RequestId id) const {  // that it holds
    return parts_.kv_in->Has(id) ? static_cast<int64_t>(parts_.kv_in->TableOf(id)->size()) : 0;
  }
  absl::Status HasRoom(int64_t blocks, int64_t left_to_group) const;
  bool TakeBlock(const DecodeSequence& sequence);
  void ResumePreempted();

  const bool launch_ahead_;
  const Parts parts_;
  BatchScheduler batch_;
  BlockOrder order_;
  int64_t left_to_group_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t recomputed_tokens_ = 0;
};

}  // namespace skein::scheduler
