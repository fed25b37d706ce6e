// BoundLead: what the lead of a bound group does while it is bound: it has the group's sequences,
// decides its steps (GroupPlanner) and proposes them on the feed, has all ranks keep blocks for KV
// that comes, takes sequences that members hand over, and releases the group when it is ordered to.
// Part of BoundGroup, of one epoch, and used only on its thread.
//
// Effects as FeedLead's, but for those about steps, which it takes itself: SendFeed,
// EnterGroupStep, GroupFailed. Drive has to follow each call that may change what is to run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/handoff_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/group_offers.h"
#include "scheduler/worker/group/group_planner.h"
#include "scheduler/worker/group/group_reservations.h"
#include "scheduler/worker/group/own_in_group.h"

namespace skein::scheduler {

class BoundLead {
 public:
  using Key = std::pair<RequestId, Epoch>;

  // `batch` is this rank's; it and `coming` outlive this. `answered` as GroupReservations'.
  BoundLead(uint64_t epoch, const GroupPlannerConfig& config, const FeedLimits& limits,
            GroupBatch* batch, ComingBlocks* coming, RoomFor room,
            std::function<void(RequestId)> answered);

  // ---- steps ----

  void ProposeFirst(TimeUs now, FeedEffects* effects);  // a step of nothing: it binds the others
  void Take(int rank, const FeedMessage& message, TimeUs now, FeedEffects* effects);
  // As FeedLead's.
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled, TimeUs now,
                 FeedEffects* effects);
  void Lost(int rank, const absl::Status& why, FeedEffects* effects);
  void End(const absl::Status& why, FeedEffects* effects);
  void Tick(TimeUs now, FeedEffects* effects);
  TimeUs NextTick() const;
  // Proposes what can be, or ends the epoch if that is ordered and may be.
  void Drive(const OwnWork& own, bool own_pauses, TimeUs now, FeedEffects* effects);

  // ---- release ----

  // kHard after kSequential is obeyed, other second orders are not.
  void Release(const EndFormation& order, TimeUs now);
  std::optional<TimeUs> released_us() const { return released_us_; }  // when it was ordered to
  // The epoch has ended so because that was ordered.
  bool EndedAsOrdered(const absl::Status& why) const {
    return release_.has_value() && release_->why == why;
  }

  // ---- sequences ----

  bool MayJoin() const { return !feed_.over() && !release_.has_value(); }
  // As BoundGroup's. ALREADY_EXISTS: a sequence of this request and epoch is here.
  absl::Status Join(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                    const std::vector<int32_t>& output, FeedEffects* effects);
  void Leave(RequestId id, Epoch epoch) { planner_.Remove(id, epoch); }

  // ---- KV that comes: as BoundGroup's ----

  absl::StatusOr<std::vector<TransferTarget>> Reserve(const SpecPtr& spec, Epoch epoch, TimeUs now,
                                                      FeedEffects* effects);
  const GroupReservations& reservations() const { return reservations_; }
  void JoinWithKv(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                  const std::vector<int32_t>& output, BlockTable blocks, FeedEffects* effects);
  bool Dismiss(RequestId id, FeedEffects* effects) { return reservations_.Dismiss(id, effects); }
  // The epoch is over. Returns what Reserve has given.
  std::vector<Key> EndReservations() { return reservations_.End(); }

  uint64_t preemptions() const { return planner_.preemptions(); }
  int64_t wanted_blocks() const { return wanted_blocks_; }  // of the latest plan
  absl::Status CheckInvariants() const { return feed_.CheckInvariants(); }

 private:
  void Pass(FeedEffects told, TimeUs now, FeedEffects* effects);
  void TakeRefused(const StepRefused& refused, TimeUs now, FeedEffects* effects);
  void TakeHandedOver(const FeedOffer& part, TimeUs now, FeedEffects* effects);
  absl::Status CheckNew(const RequestSpec& spec, Epoch epoch) const;
  bool MayEnd() const;
  void Withdraw(FeedEffects* effects);
  void Propose(const OwnWork& own, TimeUs now, FeedEffects* effects);
  void Offer(OfferedSequence sequence, FeedEffects* effects);
  int64_t BlocksOf(int64_t tokens) const;

  const uint64_t epoch_;
  const GroupPlannerConfig config_;
  GroupBatch* const batch_;
  const RoomFor room_;
  FeedLead feed_;
  GroupPlanner planner_;
  GroupReservations reservations_;
  GroupOffers handed_over_;
  std::optional<EndFormation> release_;
  std::optional<TimeUs> released_us_;
  TimeUs propose_from_us_ = 0;
  int64_t wanted_blocks_ = 0;
};

}  // namespace skein::scheduler
