// BoundGroup: a decode-worker's part in the formations of its group (formation_messages.h): it
// prepares, binds and releases, and while it is bound it runs the steps of the feed, as the lead
// (rank 0) or as a member. The lead holds the sequences of the group, decides its steps
// (GroupPlanner) and gets their tokens; members only run them.
//
// One total order of steps. From the epoch's first step on, this rank runs nothing by itself:
// TakeStep gives the next step of the feed, which may be one of the rank's own batch. Until then
// own steps go on as before, so a bind stops nobody that is not bound in the end.
//
// Its parts each have a state and a header of their own:
//   HeldFormation   what is held, from the order to prepare to the end, and what is told of it
//   OwnInGroup      what this rank runs by itself
//   GroupBatch      while bound: the sequences of the group, with their blocks
//   BoundLead       while bound, at the lead: steps, sequences, reservations, release
//   BoundMember     while bound, at the others: offers, and the wait for the lead
//
// Own sequences fare as the order to prepare says (OwnSequences; Flying Serving, section 5):
//   kShare        own steps and the group's take turns (StepShare).
//   kSequential   this rank is prepared when it has no own sequence left; it takes no new one from
//                 then until the epoch's first step (TakesOwn).
//   kSoftPreempt  likewise, but the lead does not wait, and a rank that is prepared takes new ones
//                 until it is bound. What a rank runs then goes on in the group (MovesOwn).
//   kHardPreempt  own steps run only where the group has nothing to run, be it for lack of blocks.
//                 This lasts until the group is released, at most own_pause_us from the bind on;
//                 then both take turns. So a pause is bounded, and since own sequences run while
//                 the group waits for their blocks, it makes no deadlock.
//
// Sequences of a member that go on in the group (kSoftPreempt). It hands them to the lead, with
// their tokens so far; the lead offers them to all ranks, and the group computes them like its own.
// Nothing else moves: every rank samples every token, so the member has those of its sequences in
// the group's steps, keeps their streams, and decides when they end (Leave).
//
// KV that comes. The KV of a prompt may come from prefill instances straight into the blocks of
// every rank (AnnounceOf::formation). The lead has all ranks keep blocks for it (Reserve), and its
// owner tells the writers of them. When all is written, the sequence joins with its KV
// (JoinWithKv), and each rank's blocks are in its batch. Until then each rank has them in
// ComingBlocks, the lead's in KvIn once Reserve has given them. Kept blocks are given up at every
// rank by Dismiss, when the epoch ends, and when Reserve is not called again in time.
//
// Ends. Whatever ends the epoch (order, death, failed step, silence), ends it at every rank that
// lives, in bounded time: the batch is dissolved, its blocks are free, and each rank gets its
// sequences back (FormationOver), to compute them anew: the lead those of the group, a member what
// it handed over. With kSequential they end first, also those whose KV is coming.
//
// Sans-io, as the feed: effects by `emit`, inside the call that has them. The owner calls from one
// thread.
//
// Invariants, by number (CheckInvariants names them):
//   1. There are a batch and either a BoundLead or a BoundMember exactly while this instance is
//      bound.
//   2. The batch's own, and the feed's.
//   3. Blocks are kept for KV that comes only while bound; at the lead, of reservations that
//      Reserve has not given yet.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/handoff_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/group/bound_effects.h"
#include "scheduler/worker/group/bound_lead.h"
#include "scheduler/worker/group/bound_member.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/held_formation.h"
#include "scheduler/worker/group/own_in_group.h"
#include "scheduler/worker/group/own_pause.h"
#include "scheduler/worker/group/step_feed.h"
#include "scheduler/worker/kv_in/coming_blocks.h"

namespace skein::scheduler {

struct BoundGroupConfig {
  FeedLimits limits;
  BatchLimits batch;  // of a step of the group
  int32_t kv_heads = 1;
  int32_t block_tokens = 16;  // of a block of one instance alone
  // Steps of more tokens run in pure SP, where the order to prepare says nothing else.
  int64_t shift_tokens = std::numeric_limits<int64_t>::max();
  double own_share = 0;  // StepShare
  // kHardPreempt: the longest pause of own sequences, where the order to prepare says nothing else.
  TimeUs own_pause_us = kOwnPauseUs;
  std::string memory;  // the transport's description of this rank's KV regions
};

class BoundGroup {
 public:
  // `pool` and `coming`, which keeps blocks of it, outlive this; the own sequences of this rank use
  // the pool, too. `room`: OK if these may spare so many blocks, else RESOURCE_EXHAUSTED.
  BoundGroup(const BoundGroupConfig& config, BlockPool* pool, ComingBlocks* coming, RoomFor room,
             EmitBound emit);

  // From the orchestrator.
  void Prepare(const PrepareFormation& order, TimeUs now) { held_.Prepare(order, now); }
  void Commit(const CommitFormation& order, TimeUs now);
  void End(const EndFormation& order, TimeUs now);
  // Of an OpenFeed: this instance's rank. Not OK: the context is not there.
  void FeedOpened(uint64_t epoch, const absl::StatusOr<int>& rank, TimeUs now) {
    held_.FeedOpened(epoch, rank, now);
  }
  // From the feed. Lost: that rank's process has ended.
  void FeedArrived(int rank, const FeedMessage& message, TimeUs now);
  void FeedLost(int rank, const absl::Status& why, TimeUs now);
  void Tick(TimeUs now);
  TimeUs NextTick() const;

  bool bound() const { return held_.bound(); }
  bool Holds(uint64_t epoch) const { return held_.Holds(epoch); }
  bool holds_any() const { return held_.holds_any(); }
  // Own steps run only by TakeStep while this is true: from the epoch's first step on.
  bool runs_steps() const { return bound() && (has_run_ || entered_.has_value()); }
  // The epoch's first step may come at any moment. An own step that was launched behind the one
  // that runs would delay it, at every rank. But in a soft bind those who are prepared go on taking
  // requests while the others' sequences end.
  bool about_to_step() const {
    const bool takes_on = OwnJoinGroup(held_.order().own);
    return (held_.may_bind() && !takes_on) || (bound() && !runs_steps());
  }
  uint64_t epoch() const { return held_.order().epoch; }      // REQUIRES: bound
  bool leads() const { return held_.leads(); }                // REQUIRES: bound
  int32_t size() const { return held_.order().size; }         // REQUIRES: bound
  OwnSequences own() const { return held_.order().own; }      // REQUIRES: bound
  const FormationTold& told() const { return held_.told(); }  // the latest

  // Whether this rank may begin sequences of its own: not while they are to end first.
  bool TakesOwn() const { return held_.TakesOwn(); }
  // Once an epoch: what this rank runs alone is to join the group, preempted. Then OwnMoved.
  bool MovesOwn() const {
    return own_.moves() && runs_steps() && over_.ok() && (member_.has_value() || MayJoin());
  }
  void OwnMoved() { own_.Moved(); }

  // This instance takes part no longer: an epoch ends for all, a prepared one is forgotten.
  void Abandon(const absl::Status& why, TimeUs now);
  // A stream to the orchestrator began, whose hello told of this epoch. The orchestrator has given
  // up what it was not told of.
  void Registered(uint64_t told_epoch);

  // ---- sequences of the group ----

  // Whether a sequence may join: this rank leads and the group is not being released.
  bool MayJoin() const { return lead_.has_value() && lead_->MayJoin(); }
  // OK: it can join. INVALID_ARGUMENT: it cannot be told to the members. RESOURCE_EXHAUSTED: it can
  // never fit. REQUIRES: bound.
  absl::Status CheckFits(const RequestSpec& spec) const;
  // It is computed by the group from its first token on. Not OK: as CheckFits, or ALREADY_EXISTS:
  // the group runs it. REQUIRES: MayJoin() or MovesOwn(); at a member, CheckFits.
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

  uint64_t preemptions() const { return preemptions_ + (lead_ ? lead_->preemptions() : 0); }
  int64_t batch_blocks() const;  // held by the batch
  BatchKv batch_kv() const;      // GroupBatch::Kv; nothing while this instance is not bound
  // Free ones of this rank that the group will take soon, or waits for: no new own sequence takes
  // them. May be more than are free.
  int64_t wanted_blocks() const;
  absl::Status CheckInvariants() const;

 private:
  void Bind(TimeUs now);
  void Carry(FeedEffects effects, TimeUs now);
  void Carry(const GroupFailed& failed);
  void EndOf(const absl::Status& why, TimeUs now);
  void AwaitLead(bool heard, TimeUs now);
  void Drive(TimeUs now);  // the lead proposes, or ends; whoever is over leaves
  void Finish(TimeUs now);
  void AddHandedOver(FormationOver* over) const;

  const BoundGroupConfig config_;
  BlockPool* const pool_;
  ComingBlocks* const coming_kv_;
  const RoomFor room_;
  const EmitBound emit_;

  HeldFormation held_;
  OwnInGroup own_;

  // While bound.
  std::optional<GroupBatch> batch_;
  std::optional<BoundLead> lead_;  // one of the two
  std::optional<BoundMember> member_;
  std::optional<GroupStep> entered_;  // and not taken yet
  bool in_step_ = false;              // one was taken; it may outlive the feed
  bool has_run_ = false;              // the epoch's first step was taken
  TimeUs entered_us_ = 0;             // when that was entered
  absl::Status over_;                 // not OK: the feed is over, why

  uint64_t preemptions_ = 0;  // of former epochs
};

}  // namespace skein::scheduler
