// BoundGroup: a decode-worker's part in the formations of its group (formation_messages.h): it
// prepares, binds and releases, and while it is bound it runs the steps of the feed, as the lead
// (rank 0) or as a member. The lead holds the sequences of the group, decides its steps
// (GroupPlanner) and gets their tokens; members only run them.
//
// One total order of steps. From the epoch's first step on, this rank runs nothing by itself:
// TakeStep gives the next step of the feed, which may be one of the rank's own batch. Until then
// own steps go on as before, so a bind stops nobody that is not bound in the end.
//
// Own sequences fare as the order to prepare says (OwnSequences; Flying Serving, section 5):
//   kShare        own steps and the group's take turns (StepShare).
//   kSequential   this rank is prepared when it has no own sequence left; it takes no new one from
//                 then until the epoch's first step (TakesOwn).
//   kSoftPreempt  likewise, but not the lead; what it runs when it is bound goes on in the group
//                 (MovesOwn).
//   kHardPreempt  own steps run only where the group has nothing to run, be it for lack of blocks.
//                 This lasts until the group is released, at most own_pause_us from the bind on;
//                 then both take turns. So a pause is bounded, and since own sequences run while
//                 the group waits for their blocks, it makes no deadlock.
//
// KV that comes. The KV of a prompt may come from prefill instances straight into the blocks of
// every rank (AnnounceOf::formation). The lead has all ranks keep blocks for it (Reserve), and its
// owner tells the writers of them. When all is written, the sequence joins with its KV
// (JoinWithKv), and each rank's blocks are in its batch. Until then each rank has them in
// ComingBlocks, the lead's in KvIn once Reserve has given them. Kept blocks are given up at every
// rank by Dismiss, when the epoch ends, and when Reserve is not called again in time.
//
// Ends. Whatever ends the epoch (order, death, failed step, silence), ends it at every rank that
// lives, in bounded time: the batch is dissolved, its blocks are free, and the lead gets the
// sequences back (FormationOver), to compute them anew. With kSequential they end first, also those
// whose KV is coming.
//
// Sans-io, as the feed: effects by `emit`, inside the call that has them. The owner calls from one
// thread.
//
// Invariants, by number (CheckInvariants names them):
//   1. There are a batch and one side of the feed exactly while this instance is bound; the lead
//   alone
//      has a planner.
//   2. The batch's own, and the feed's.
//   3. Blocks are kept for KV that comes only while bound; at the lead, of reservations that
//   Reserve
//      has not given yet.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/handoff_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/feed_member.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/group_planner.h"
#include "scheduler/worker/group/own_pause.h"
#include "scheduler/worker/group/step_feed.h"
#include "scheduler/worker/kv_in/coming_blocks.h"

namespace skein::scheduler {

struct BoundGroupConfig {
  FeedLimits limits;
  BatchLimits batch;  // of a step of the group
  int32_t kv_heads = 1;
  int32_t block_tokens = 16;  // of a block of one instance alone
  // Steps of more tokens run in SP, where the order to prepare says nothing else.
  int64_t shift_tokens = std::numeric_limits<int64_t>::max();
  double own_share = 0;  // StepShare
  // kHardPreempt: the longest pause of own sequences, where the order to prepare says nothing else.
  TimeUs own_pause_us = kOwnPauseUs;
  std::string memory;  // the transport's description of this rank's KV regions
};

// What this rank runs by itself, now.
struct OwnWork {
  int64_t tokens = 0;  // that a step of it would run
  bool waits = false;  // sequences of it wait for blocks
  bool any = false;    // there are sequences, also such whose KV is coming, or a step of them runs
};

// Effect: take the context of these instances (PrepareFormation) and read its feed from now on;
// answer with FeedOpened.
struct OpenFeed {
  uint64_t epoch = 0;
  uint64_t generation = 0;
  int32_t first = 0, size = 0;
};
// Effect: the feed of the epoch is over. Broken: a step may run at some rank; break its
// communicators.
struct CloseFeed {
  uint64_t epoch = 0;
  bool broken = false;
  absl::Status why;
};
// Effect: send to the rank of the open feed. With a grant: the memory of a FeedReserved is the
// config's, which the shell describes under it, after it has opened it at the transport.
struct SendOnFeed {
  uint64_t epoch = 0;
  int rank = 0;
  FeedMessage message;
  GrantId grant = {};
};
// Effect, of the lead: Reserve has another answer for the request.
struct GroupAnswered {
  RequestId id;
};
// Effect: to the orchestrator, if its stream is open.
struct TellFormation {
  FormationTold told;
};
// Effect: this rank works alone again. `left`: the sequences that were in the batch; their blocks
// are free. `coming`: those that Reserve has given blocks and that have not joined.
struct FormationOver {
  absl::Status why;
  std::vector<std::pair<RequestId, Epoch>> left;
  std::vector<std::pair<RequestId, Epoch>> coming = {};
};
using BoundEffect =
    std::variant<OpenFeed, CloseFeed, SendOnFeed, TellFormation, GroupAnswered, FormationOver>;

class BoundGroup {
 public:
  // `pool` and `coming`, which keeps blocks of it, outlive this; the own sequences of this rank use
  // the pool, too. `room`: OK if these may spare so many blocks, else RESOURCE_EXHAUSTED.
  BoundGroup(const BoundGroupConfig& config, BlockPool* pool, ComingBlocks* coming,
             std::function<absl::Status(int64_t blocks)> room,
             std::function<void(BoundEffect)> emit);

  // From the orchestrator.
  void Prepare(const PrepareFormation& order, TimeUs now);
  void Commit(const CommitFormation& order, TimeUs now);
  void End(const EndFormation& order, TimeUs now);
  // Of an OpenFeed: this instance's rank. Not OK: the context is not there.
  void FeedOpened(uint64_t epoch, const absl::StatusOr<int>& rank, TimeUs now);
  // From the feed. Lost: that rank's process has ended.
  void FeedArrived(int rank, const FeedMessage& message, TimeUs now);
  void FeedLost(int rank, const absl::Status& why, TimeUs now);
  void Tick(TimeUs now);
  TimeUs NextTick() const;

  bool bound() const { return phase_ == Phase::kBound; }
  // Own steps run only by TakeStep while this is true: from the epoch's first step on.
  bool runs_steps() const { return bound() && (has_run_ || entered_.has_value()); }
  // The epoch's first step may come at any moment. An own step that was launched behind the one
  // that runs would delay it, at every rank.
  bool about_to_step() const { return phase_ == Phase::kPrepared || (bound() && !runs_steps()); }
  uint64_t epoch() const { return order_.epoch; }      // REQUIRES: bound
  bool leads() const { return rank_ == 0; }            // REQUIRES: bound
  int32_t size() const { return order_.size; }         // REQUIRES: bound
  const FormationTold& told() const { return told_; }  // the latest

  // Whether this rank may begin sequences of its own: not while they are to end first.
  bool TakesOwn() const {
    return phase_ != Phase::kDraining && (phase_ != Phase::kPrepared || !OwnEndFirst());
  }
  // Once an epoch, at the lead: what it runs alone is to join the group, preempted. Then OwnMoved.
  bool MovesOwn() const { return moves_own_ && runs_steps() && MayJoin(); }
  void OwnMoved() { moves_own_ = false; }

  // This instance takes part no longer: an epoch ends for all, a prepared one is forgotten.
  void Abandon(const absl::Status& why, TimeUs now);
  // A stream to the orchestrator began, whose hello told of this epoch. The orchestrator has given
  // up what it was not told of.
  void Registered(uint64_t told_epoch);

  // ---- the lead's sequences ----

  // Whether a sequence may join: this rank leads and the group is not being released.
  bool MayJoin() const { return bound() && leads() && over_.ok() && !ending_.has_value(); }
  // OK: it can join. INVALID_ARGUMENT: it cannot be told to the members. RESOURCE_EXHAUSTED: it can
  // never fit. REQUIRES: bound().
  absl::Status CheckFits(const RequestSpec& spec) const;
  // It is computed by the group from its first token on. Not OK: as CheckFits. REQUIRES: MayJoin().
  absl::Status Join(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                    const std::vector<int32_t>& output, TimeUs now);
  void Leave(RequestId id, Epoch epoch, TimeUs now);  // it runs no further; unknown ones are fine

  // ---- KV that comes, at the lead ----

  struct Targets {
    KvLayout layout;
    std::vector<TransferTarget> others;  // of ranks 1, 2, …
  };
  // Has every rank keep blocks for the prompt's KV. OK: all do; the lead's are in ComingBlocks, for
  // the caller to take. UNAVAILABLE: not all have answered; GroupAnswered follows. Else nothing is
  // kept. RESOURCE_EXHAUSTED: no room, or this instance leads no group of the epoch `formation`
  // that takes new sequences. INVALID_ARGUMENT: as Join's. REQUIRES: the prompt is not empty; it
  // was not OK before.
  absl::StatusOr<Targets> Reserve(uint64_t formation, const SpecPtr& spec, Epoch epoch, TimeUs now);
  // Reserve was OK, and it has neither joined nor been dismissed, nor has the epoch ended since.
  bool Reserved(RequestId id, Epoch epoch) const;
  // It runs from here on: all ranks have the KV of its prompt, this one in `blocks`, which are the
  // batch's now. REQUIRES: Reserved(spec->id, epoch); a token of output.
  void JoinWithKv(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                  const std::vector<int32_t>& output, BlockTable blocks, TimeUs now);
  // The KV of the request will not come. Unknown ones are fine.
  void Dismiss(RequestId id, TimeUs now);

  // ---- steps ----

  // Told to the lead. An instance whose own sequences end first is prepared when it has none.
  void SetOwn(const OwnWork& own, TimeUs now);
  // The next step, if one has been started; then StepEnded. Of mode own: a step of the own batch,
  // or nothing if `own_tokens` is 0 or the own batch has nothing to run. REQUIRES: the engine is
  // idle.
  std::optional<GroupStep> TakeStep(TimeUs now);
  bool in_step() const { return in_step_; }  // one was taken, and has not ended
  // `sampled` as GroupBatch::End. REQUIRES: in_step().
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled, TimeUs now);

  uint64_t preemptions() const { return preemptions_ + (planner_ ? planner_->preemptions() : 0); }
  int64_t batch_blocks() const;  // held by the batch
  // Free ones of this rank that the group will take soon, or waits for: no new own sequence takes
  // them. May be more than are free.
  int64_t wanted_blocks() const { return wanted_blocks_; }
  absl::Status CheckInvariants() const;

 private:
  enum class Phase {
    kAlone,
    kOpening,
    kDraining,  // the feed is open; own sequences end first
    kPrepared,
    kBound
  };
  using Key = std::pair<RequestId, Epoch>;
  // KV that comes, at the lead.
  struct Reservation {
    uint64_t number = 0;
    int64_t blocks = 0;
    std::vector<std::optional<TransferTarget>> others;  // by rank, from 1; empty: not answered
    absl::Status refused;                               // by a member; then none keeps blocks
    bool given = false;                                 // Reserve was OK
  };

  bool IsOf(uint64_t epoch) const { return phase_ != Phase::kAlone && epoch == order_.epoch; }
  void Tell(FormationTold::Phase phase, const absl::Status& why, TimeUs drain_us = 0);
  void TellBound(TimeUs now);
  void Forget(const absl::Status& why);  // what is opening or prepared
  bool OwnEndFirst() const;              // REQUIRES: the feed is open
  bool OwnPauses(TimeUs now) const;      // REQUIRES: bound
  void Bind(TimeUs now);
  void Carry(const FeedEffects& effects, TimeUs now);
  void On(const SendFeed& effect, TimeUs now);
  void On(const EnterGroupStep& effect, TimeUs now);
  void On(const StepRefused& effect, TimeUs now);
  void On(const StepCommitted& effect, TimeUs now);
  void On(const StepCompleted& effect, TimeUs now);
  void On(const GroupFailed& effect, TimeUs now);
  void EndOf(const absl::Status& why, TimeUs now);
  void TakeOffer(const FeedOffer& part, TimeUs now);
  void Offer(OfferedSequence sequence);
  void SendOffer(FeedOffer part, const std::vector<int32_t>& tokens);
  void Withdraw();
  void SendWithdraw(const Key& key);
  int64_t BlocksOf(int64_t tokens) const;
  // KV that comes: bound_group_coming.cc.
  absl::Status StartReservation(const Key& key, int64_t tokens, TimeUs now);
  static std::optional<int> RankToAnswer(const Reservation& reservation);
  void TakeReserve(const FeedReserve& reserve);
  FeedReserved AnswerTo(const FeedReserve& reserve);
  void TakeReserved(int rank, const FeedReserved& reserved, TimeUs now);
  absl::StatusOr<BlockTable> TakeWhole(const FeedOffer& offer);
  void Forget(RequestId id);
  void TickReservations(TimeUs now);
  std::vector<Key> EndReservations();
  bool Drained() const { return planner_->Empty() && reservations_.empty(); }
  void AwaitLead(bool heard, TimeUs now);
  void Drive(TimeUs now);  // the lead proposes, or ends; whoever is over leaves
  void Propose(TimeUs now);
  void Finish(TimeUs now);

  const BoundGroupConfig config_;
  BlockPool* const pool_;
  ComingBlocks* const coming_kv_;
  const std::function<absl::Status(int64_t blocks)> room_;
  const std::function<void(BoundEffect)> emit_;

  Phase phase_ = Phase::kAlone;
  PrepareFormation order_;  // the latest
  TimeUs keep_until_us_ = kNever;
  int rank_ = 0;
  FormationTold told_;

  // While bound.
  std::optional<GroupBatch> batch_;
  std::optional<FeedLead> lead_;  // one of the two
  std::optional<FeedMember> member_;
  std::optional<GroupPlanner> planner_;      // of the lead
  std::map<Key, FeedOffer> coming_;          // of a member: offers in parts
  std::map<Key, Reservation> reservations_;  // of the lead
  TimerQueue<Key> reservation_ends_;         // of those that were not given
  std::optional<GroupStep> entered_;         // and not taken yet
  bool in_step_ = false;                     // one was taken
  std::optional<EndFormation> ending_;       // of the lead: it was ordered to release
  absl::Status over_;                        // not OK: the feed is over, why
  OwnWork own_;
  bool moves_own_ = false;
  int64_t wanted_blocks_ = 0;    // of the latest plan
  int64_t own_told_ = 0;         // of a member
  TimeUs plan_due_us_ = kNever;  // of a member with own work: the lead's next plan
  TimeUs propose_from_us_ = 0;
  TimeUs opened_us_ = 0, bind_us_ = 0, entered_us_ = 0, ending_us_ = 0;
  bool has_run_ = false;
  uint64_t preemptions_ = 0;  // of former epochs
  uint64_t last_reservation_ = 0;
};

}  // namespace skein::scheduler
