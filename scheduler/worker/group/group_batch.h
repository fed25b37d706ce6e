// GroupBatch: the batch of a bound group, as each of its ranks holds it. All ranks apply the same
// plans in the same order and sample the same bits, so their batches are equal but for the blocks:
// each rank has its own.
//
// A sequence is offered at every rank (its request is known there, its KV so far lies in blocks
// there), then added by a plan, runs, may be preempted (it stays, without KV, and is computed
// again), and is removed by a plan.
//
// What a sequence runs in a step follows from the batch: one token if its KV lacks exactly one,
// which it then samples after; nothing if it lacks more, unless the plan names a slice.
//
// A plan is prepared (blocks are taken), then cancelled or committed. Committed plans are begun and
// ended one after the other; the next one may be prepared and committed while one runs. What a plan
// removes keeps its blocks until its step begins: the step before it may still read them.
//
// Invariants, by number (CheckInvariants names them):
//   1. A sequence's blocks are exactly those that its KV, with committed steps, needs.
//   2. Blocks are in one table only.
//   3. At most one plan is prepared, and at most one step runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/vocabulary/kv_layout.h"
#include "scheduler/worker/group/step_feed.h"
#include "scheduler/worker/steps/step.h"

namespace skein::scheduler {

// A sequence with what this rank has of it. `blocks` hold its first `kv_tokens` tokens in the
// group's layout, and no more blocks than that takes; the batch owns the reference.
struct OfferedSequence {
  Epoch epoch;
  SpecPtr spec;
  BlockTable blocks;
  int64_t kv_tokens = 0;
  std::vector<int32_t> output;  // the same at every rank
};

// A step that begins: what runs, in the order of handles. As of EngineRunner's RunStep.
struct GroupStep {
  uint64_t step = 0;
  StepMode mode;
  int64_t own_tokens = 0;                // mode own: as FeedPlan; nothing of this batch runs
  std::vector<StepSequence> sequences;   // without ring
  std::vector<ReleaseSequence> removed;  // they are in no further step
};

// What a rank holds of the KV of a batch.
struct BatchKv {
  int64_t sequences = 0;     // that have blocks
  int64_t blocks = 0;        // of these sequences, at this rank
  int64_t blocks_alone = 0;  // that one instance alone would hold for the same tokens
  bool operator==(const BatchKv&) const = default;
};

class GroupBatch {
 public:
  // `tokens_per_block` of the group's `layout`. `pool` outlives this; others may use it, too.
  GroupBatch(BlockPool* pool, KvLayout layout, int64_t tokens_per_block);

  // REQUIRES: it has not been offered under this epoch, or was withdrawn or removed.
  void Offer(OfferedSequence sequence);
  // Takes back an offer; its blocks are free. False: there is none, or a plan that is prepared or
  // committed has added it.
  bool Withdraw(RequestId id, Epoch epoch);

  // Takes the blocks that the plan's step needs. RESOURCE_EXHAUSTED: this rank is short of them.
  // NOT_FOUND: an added sequence was not offered. INVALID_ARGUMENT: the plan contradicts the batch.
  // Then nothing has changed. REQUIRES: no plan is prepared.
  absl::Status Prepare(const FeedPlan& plan);
  // The prepared plan, if there is one, runs nowhere.
  void Cancel();
  // The prepared plan will run. REQUIRES: one is prepared.
  void Commit();

  // The first committed plan that has not begun; null: none, or a step runs.
  std::optional<GroupStep> Begin();
  // The step that runs has ended; `sampled` are the tokens of its sequences with `sample`, in
  // order. -1: the sequence failed; until a plan removes it, it runs on with token 0. Returns the
  // digest of FeedDone. REQUIRES: one runs.
  uint64_t End(const std::vector<int32_t>& sampled);
  // The step that runs, if one does, has failed. The KV of its tokens is undefined: only Dissolve
  // may follow.
  void Fail() { running_.reset(); }

  // Everything leaves the batch, offers included, and its blocks are free. Also given: what plans
  // removed whose steps have not begun. REQUIRES: no step runs.
  std::vector<std::pair<RequestId, Epoch>> Dissolve();

  struct Member {
    uint32_t handle = 0;
    SpecPtr spec;
    Epoch epoch;
    int64_t kv_tokens = 0;      // with committed steps
    int64_t output_tokens = 0;  // with those that committed steps will sample
    int64_t blocks = 0;
    // Tokens that its KV lacks; 1: it decodes.
    int64_t Lacks() const { return PromptTokens(*spec) + output_tokens - kv_tokens; }
  };
  std::vector<Member> Members() const;                          // by handle
  const std::vector<int32_t>* OutputOf(uint32_t handle) const;  // null: unknown handle
  int64_t free_blocks() const { return pool_->Counts().free; }
  int64_t held_blocks() const;  // by the batch, plans and offers
  // Of its sequences and offers, with committed steps; without what the prepared plan takes and
  // what committed ones will free. `block_tokens`: of a block of one instance alone.
  BatchKv Kv(int64_t block_tokens) const;

  absl::Status CheckInvariants() const;

 private:
  struct Sequence {
    Epoch epoch;
    SpecPtr spec;
    BlockTable blocks;  // null: none
    int64_t kv_tokens = 0;
    int64_t length = 0;  // prompt and output, with what committed steps will sample
    std::shared_ptr<std::vector<int32_t>> output;
  };
  struct Row {
    uint32_t handle = 0;
    int64_t position = 0;
    int64_t count = 0;
    bool sample = false;
    BlockTable blocks;                             // that the step needs
    size_t had_blocks = 0;                         // before it, the first of these
    std::shared_ptr<Sequence> sequence = nullptr;  // once committed
  };
  struct Planned {
    FeedPlan plan;
    std::vector<Row> rows;
  };
  struct Committed {
    Planned planned;
    std::vector<ReleaseSequence> released;
    std::vector<BlockTable> freed;  // when it begins
  };
  using OfferKey = std::pair<RequestId, Epoch>;

  absl::Status CheckNames(const FeedPlan& plan) const;
  absl::Status AddRow(uint32_t handle, const Sequence& sequence, const int64_t* slice,
                      Planned* planned) const;
  absl::Status FillRows(const FeedPlan& plan, Planned* planned) const;
  absl::Status TakeBlocks(Planned* planned);
  int64_t BlocksOf(int64_t tokens) const {
    return (tokens + tokens_per_block_ - 1) / tokens_per_block_;
  }

  BlockPool* const pool_;
  const KvLayout layout_;
  const int64_t tokens_per_block_;
  std::map<OfferKey, OfferedSequence> offers_;
  std::map<uint32_t, std::shared_ptr<Sequence>> sequences_;  // by handle
  uint32_t last_handle_ = 0;
  std::optional<Planned> prepared_;
  std::deque<Committed> committed_;
  std::optional<Planned> running_;
};

}  // namespace skein::scheduler
