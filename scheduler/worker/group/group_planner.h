// GroupPlanner: which step a bound group runs next: the lead's decision, as a plan for the step
// feed (step_feed.h). It sees the batch as committed steps leave it (GroupBatch::Members), and owns
// the requests that wait to enter it, in their order, and what the ranks have told of their free
// blocks. The plan may run nowhere, because a rank is short: nothing is remembered of it.
//
// Order. Seniority is BlockOrder's: a higher priority first, then an earlier arrival, then the
// smaller id. A sequence that decodes runs one token in each step; prompts fill the rest in
// this order. A sequence enters, or resumes after a preemption, when all its tokens and some
// headroom fit the free blocks of every rank, and nobody in front of it waits. One that comes with
// the KV of its prompt enters with the next plan, whoever waits: it has its blocks already, and is
// preempted like any other from then on.
//
// Blocks. Every rank needs as many as any other. When the claims of those that run are above what
// the rank with the fewest has, the last of them gives its blocks up; those that need one meanwhile
// pause for a step. The first one pauses while a rank has own sequences that can run: their blocks
// come free as they end. When none can, because they wait for blocks, too, it gives its own up.
//
// The lead names no own sequence of another rank: when it plans, the step before may still run
// there with it, and what it knows of that batch is a step old. docs/formations.md has the reasons
// and the price.
//
// No side starves for blocks. A plan names the blocks that the group wants: those that its prompts
// will still take, and those for which somebody waits. No new own sequence takes these, so while
// somebody waits there are finitely many own ones, and their blocks come free. And while own
// sequences of a rank wait for blocks, nobody enters the group's batch: those in it end, and the
// own ones go on. If both wait, the own ones that are here go first. A sequence of the group that
// had to give its blocks up to own ones would lose its turn to the next own ones again and again:
// from then on until its end the group wants all blocks.
//
// Paused own sequences (PauseOwn) run whenever a step of the group would run nothing, also for lack
// of blocks. Requests enter the group's batch meanwhile although own sequences wait for blocks,
// because these would wait without a step of theirs. So own ones may starve as long as they pause,
// for which the caller has a limit; from then on all of the above holds.
//
// Mode (Shift Parallelism, algorithm 2): full TP up to `shift_tokens` tokens of a step, the base
// (SP, or SP x TP) above.
//
// A plan costs O(batch · log). Used on the core's thread.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/step_share.h"

namespace skein::scheduler {

struct GroupPlannerConfig {
  int ranks = 2;
  int64_t tokens_per_block = 16;  // of the group's layout
  int64_t total_blocks = 0;       // of each rank
  BatchLimits batch;              // of a step of the group
  StepMode full_tp;
  StepMode base;  // of steps of more than shift_tokens tokens
  int64_t shift_tokens = std::numeric_limits<int64_t>::max();
  double own_share = 0;  // StepShare
};

class GroupPlanner {
 public:
  explicit GroupPlanner(const GroupPlannerConfig& config);

  // Every rank has, or has been sent, an offer of it. `tokens`: prompt and output so far, of which
  // every rank has the KV of the first `kv_tokens`. REQUIRES: unknown; kv_tokens < tokens.
  void Add(RequestId id, Epoch epoch, int32_t priority, TimeUs arrived_us, int64_t tokens,
           int64_t kv_tokens = 0);
  // It runs no further: the next plan removes it, or TakeWithdrawn gives it. Unknown ones are fine.
  void Remove(RequestId id, Epoch epoch);
  // Removed ones that no plan has added, and none will: their offers may be taken back.
  std::vector<std::pair<RequestId, Epoch>> TakeWithdrawn();

  // The next step, without epoch and number. Empty: there is nothing to run. `own_tokens`: that a
  // step of this rank's own would run now; `own_waits`: its own sequences wait for blocks.
  // REQUIRES: the plan before was committed or refused.
  std::optional<FeedPlan> Next(const GroupBatch& batch, int64_t own_tokens, bool own_waits);
  // An own step of no tokens: it asks the ranks for their free blocks. Next gives it, too, when
  // sequences wait for blocks of others; then there is no hurry with the one behind it.
  FeedPlan Ask();
  // Whether own steps run only when the group has nothing to run; otherwise they take turns.
  void PauseOwn(bool pause) { own_pauses_ = pause; }
  static bool Asks(const FeedPlan& plan) { return plan.mode.own() && plan.own_tokens == 0; }
  void Committed(uint64_t step);             // the latest plan runs, as this step
  void Refused(const StepRefused& refused);  // it runs nowhere
  void Completed(const StepCompleted& completed);
  void ToldOwn(int rank, int64_t own_tokens);  // between steps

  // OK: so many blocks may be kept at every rank for KV that comes, beside all that the sequences
  // here still claim and some headroom. RESOURCE_EXHAUSTED otherwise.
  absl::Status HasRoom(const GroupBatch& batch, int64_t blocks) const;

  bool Empty() const { return seniority_.empty(); }  // no sequence waits or is in the batch
  bool Has(RequestId id, Epoch epoch) const { return seniority_.contains({id, epoch}); }
  uint64_t preemptions() const { return preemptions_; }

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Seniority {
    int64_t before = 0;  // minus the priority
    TimeUs arrived_us = 0;
    Key key;
    auto operator<=>(const Seniority&) const = default;
  };
  // A sequence that may run, as committed steps leave it.
  struct Row {
    uint32_t handle = 0;
    int64_t kv_tokens = 0;  // 0: it waits, new or preempted
    int64_t lacks = 0;      // tokens
    int64_t blocks = 0;
    bool Decodes() const { return kv_tokens > 0 && lacks == 1; }
  };
  using Rows = std::map<Seniority, Row>;
  // A plan while it is made.
  struct Draft {
    FeedPlan plan;
    int64_t free = 0;              // blocks, at the rank with the fewest
    int64_t taken = 0;             // blocks
    int64_t claimed = 0;           // blocks that its prompts will take in later plans
    int64_t tokens = 0;            // that it runs
    int64_t sequences = 0;         // likewise
    std::vector<Seniority> added;  // that begin to run in it, new or preempted
    std::vector<Key> removed;
    std::vector<Key> yielding;  // gives its blocks up to own sequences
    int64_t wanted = 0;         // blocks for which somebody waits
  };

  FeedPlan Propose(Draft draft);
  Rows LiveRows(const GroupBatch& batch, Draft* draft) const;
  int64_t FewestFree(const GroupBatch& batch) const;
  int64_t HeadroomFor(int64_t running) const;
  int64_t Headroom(const Rows& rows, const Draft& draft) const;
  int64_t BlocksOf(int64_t tokens) const {
    return (tokens + config_.tokens_per_block - 1) / config_.tokens_per_block;
  }
  // Blocks that it takes until its KV is whole.
  int64_t Claim(const Row& row) const { return BlocksOf(row.kv_tokens + row.lacks) - row.blocks; }
  int64_t TokensOf(const Rows& rows) const;  // that a step would run, at most
  void Preempt(bool own_run, Rows* rows, Draft* draft) const;
  void RunDecode(const Rows& rows, Draft* draft);
  std::set<uint32_t> DecodeTurn(const Rows& rows);
  void RunPrompts(const Rows& rows, Draft* draft) const;
  void EnterWithKv(Draft* draft);
  void Enter(const Rows& rows, bool own_waits, Draft* draft);
  bool EnterOne(const Row& row, int64_t headroom, Draft* draft) const;
  int64_t Wanted(const Draft& draft, int64_t tokens, bool runs_own) const;
  bool Slice(const Row& row, Draft* draft) const;

  const GroupPlannerConfig config_;
  StepShare share_;
  bool own_pauses_ = false;
  std::map<Key, Seniority> seniority_;  // of all
  // In no committed plan:
  std::map<Seniority, int64_t> queue_;  // without KV -> tokens
  Rows with_kv_;
  std::set<Key> ended_;            // to be removed
  std::set<Key> yielded_;          // gave their blocks up to own sequences once
  int64_t wanted_blocks_ = 0;      // of the latest committed plan
  std::optional<Draft> proposed_;  // neither committed nor refused
  uint32_t last_handle_ = 0;
  uint32_t last_run_ = 0;  // the last decoding handle of a step that was too full
  // By rank, as told; this one's are not used. The blocks are those after step counted_.
  std::vector<int64_t> told_free_;
  std::vector<uint64_t> counted_;
  std::vector<int64_t> told_own_;
  bool told_own_waits_ = false;
  std::map<uint64_t, int64_t> taken_;  // committed steps that are not completed -> blocks
  uint64_t last_step_ = 0;             // that was committed
  uint64_t preemptions_ = 0;
};

}  // namespace skein::scheduler
