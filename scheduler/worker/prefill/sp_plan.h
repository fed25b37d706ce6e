// SpPlan: this instance's part in one SP plan: which pieces it computes together with the other
// members, and in which of its local blocks. Part of SpPlans.
//
// Its local blocks are numbered in the order in which its pieces fill them, computed or received:
// slot i is block i of the request's table. So later chunks only add slots at the end.
//
// Invariant (CheckInvariants): every global block has at most one slot, and the slots are numbered
// without gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/kv/deal.h"
#include "scheduler/worker/kv_out/kv_out_events.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

class SpPlan {
 public:
  // Without chunks: AddChunks first. `self`: as the plan names this instance.
  SpPlan(SpecPtr spec, Epoch epoch, const DealSizes& sizes, InstanceId self);

  // The chunks of the plan's first Assign, or of a later one, which repeats the earlier chunks.
  // INVALID_ARGUMENT "chunks: …": nothing was added then.
  absl::Status AddChunks(const AssignRequest& assign);

  RequestId id() const { return spec_->id; }
  InstanceId self() const { return self_; }
  bool Leads() const;                             // rank 0 of chunk 0
  bool Whole() const { return dealer_.Whole(); }  // no chunk is missing
  bool ComputesNothing() const { return share_.empty(); }
  int64_t slots() const { return slots_used_; }  // that the chunks so far fill
  // The blocks to allocate at once. A plan whose last chunks are unknown gets blocks for the whole
  // rest of the prompt: if it asked for more later, two such plans could wait for each other.
  int64_t BlocksWanted(int64_t total) const;
  int64_t BlocksToCompute() const { return static_cast<int64_t>(share_.size()) - blocks_done_; }
  uint32_t chunks_known() const { return static_cast<uint32_t>(chunks_.size()); }
  uint32_t chunks_done() const { return chunks_done_; }
  TimeUs chunk_since_us() const { return chunk_since_us_; }  // kNever: no chunk runs
  // The chunks of the first Assign are computed here.
  bool FirstChunksDone() const { return static_cast<int>(chunks_done_) >= first_chunks_; }

  // The chunk of the next piece that this instance takes part in; empty: it has no more so far.
  std::optional<int> NextChunk() const;
  // Of its chunk, as PlanChunk says. REQUIRES: NextChunk().
  TimeUs NextEstimateUs() const { return chunks_[next_->chunk].estimated_us; }
  // That piece, as a step. `blocks`: the request's table. Its chunk runs from now on. REQUIRES:
  // NextChunk().
  StepSequence Enter(const std::vector<BlockId>& blocks, TimeUs deadline_us, TimeUs now);
  // That piece was computed, here and by the others, or was given up. `ok`: it counts.
  void Leave(const StepSequence& ran, bool ok);

  // The blocks that are computed here and have not been named before.
  std::vector<HandoffBlock> TakeNewPuts(const std::vector<BlockId>& blocks);
  // Of the chunks from the next piece's on (or behind it, with `skip_next`): groups in which others
  // may wait for this instance, tensor groups included.
  std::vector<BreakGroup> GroupsAhead(bool skip_next) const;

  absl::Status CheckInvariants() const;

 private:
  absl::Status AddChunk(const AssignRequest& assign, size_t index);
  void GiveSlots();
  void FindNext();
  RingPart PartOf(const std::vector<BlockId>& blocks, TimeUs deadline_us) const;
  std::vector<std::string> CommAddresses(int chunk) const;

  SpecPtr spec_;
  Epoch epoch_;
  InstanceId self_;
  int64_t block_tokens_ = 0;
  std::vector<PlanMember> members_;
  std::vector<PlanChunk> chunks_;
  int first_chunks_ = 0;        // of the first Assign
  Dealer dealer_;               // behind `next_`
  Dealer ahead_;                // behind the last piece of all chunks
  std::optional<Piece> next_;   // the next one that this instance takes part in
  std::vector<int32_t> slots_;  // by global block; -1: has no copy of it
  int64_t slots_used_ = 0;
  int64_t later_blocks_ = 0;    // that chunks still unknown may bring (BlocksToFill of `ahead_`)
  std::vector<int32_t> share_;  // global blocks that are computed here, ascending
  size_t share_named_ = 0;      // of share_: those that TakeNewPuts has returned
  int64_t blocks_done_ = 0;     // of share_: those that are computed
  uint32_t chunks_done_ = 0;
  TimeUs chunk_since_us_ = kNever;
};

}  // namespace skein::scheduler
