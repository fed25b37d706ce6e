// BoundMember: what a rank other than the lead does while it is bound: it takes the feed's
// messages, offers and reservations, hands sequences of its own to the group, and waits for the
// lead no longer than it may. Part of BoundGroup, of one epoch, and used only on its thread.
//
// Effects as FeedMember's: SendFeed to rank 0, EnterGroupStep, GroupFailed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/feed_member.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/group_offers.h"
#include "scheduler/worker/group/own_in_group.h"
#include "scheduler/worker/group/step_feed.h"

namespace skein::scheduler {

class BoundMember {
 public:
  // `batch` is this rank's and outlives this. `answer`: to the lead, with the grant of the blocks.
  BoundMember(uint64_t epoch, const FeedLimits& limits, GroupBatch* batch, GroupOffers offers,
              std::function<void(GroupOffers::Answer)> answer);

  void Take(const FeedMessage& message, TimeUs now, FeedEffects* effects);  // from the lead
  // As FeedMember's.
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                 const OwnWork& own, FeedEffects* effects);
  void Lost(int rank, const absl::Status& why, FeedEffects* effects);
  void End(const absl::Status& why, FeedEffects* effects) { feed_.End(why, effects); }
  void Tick(TimeUs now, FeedEffects* effects);
  TimeUs NextTick() const { return std::min(feed_.NextTick(), plan_due_us_); }

  // The group computes it from here on, without its KV. `age_us`: since its request arrived here.
  // REQUIRES: CheckOffer, and the feed is not over.
  void Give(const SpecPtr& spec, Epoch epoch, TimeUs age_us, const std::vector<int32_t>& output,
            FeedEffects* effects);
  // It runs no further; others are fine.
  void Leave(RequestId id, Epoch epoch, FeedEffects* effects);
  // What was handed over and has not left. The lead has something to run as long as there is one.
  const std::set<std::pair<RequestId, Epoch>>& handed_over() const { return handed_over_; }

  // `waits`: own sequences could run, or the group has some of this rank, and no step runs: the
  // lead's next plan has to come in bounded time. `heard`: the lead sent something just now.
  void AwaitLead(bool waits, bool heard, TimeUs now);
  int64_t wanted_blocks() const { return wanted_blocks_; }  // of the latest plan
  absl::Status CheckInvariants() const { return feed_.CheckInvariants(); }

 private:
  void TakeOffer(const FeedOffer& part, FeedEffects* effects);

  const uint64_t epoch_;
  const FeedLimits limits_;
  GroupBatch* const batch_;
  const std::function<void(GroupOffers::Answer)> answer_;
  FeedMember feed_;
  GroupOffers offers_;
  std::set<std::pair<RequestId, Epoch>> handed_over_;
  TimeUs plan_due_us_ = kNever;
  int64_t wanted_blocks_ = 0;
};

}  // namespace skein::scheduler
