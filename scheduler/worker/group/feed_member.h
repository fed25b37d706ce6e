// FeedMember: a member's side of the step feed (step_feed.h). It prepares the lead's plans on its
// own batch, runs what the lead starts in the order of the steps, and tells their ends. Sans-io, as
// FeedLead.
//
// Bounds. A member that has answered a plan hears of it within `answer_us`, or the epoch ends here.
// Between steps it waits for the lead without a bound; its owner has one, for the rank's own
// sequences (bound_group.h). The lead's death is told by Lost.
//
// Invariants, by number (CheckInvariants names them):
//   1. A plan is prepared exactly while the lead's answer is awaited.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/feed_lead.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/step_feed.h"

namespace skein::scheduler {

class FeedMember {
 public:
  // `batch` is this rank's and outlives this.
  FeedMember(uint64_t epoch, GroupBatch* batch, const FeedLimits& limits);

  // From the lead. Effects: SendFeed (to rank 0), EnterGroupStep, GroupFailed.
  void Take(const FeedMessage& message, TimeUs now, FeedEffects* effects);
  // As FeedLead's; `own_tokens` and `own_waits` as FeedDone.
  void StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                 int64_t own_tokens, bool own_waits, FeedEffects* effects);
  void Lost(const absl::Status& why, FeedEffects* effects);  // the lead
  void End(const absl::Status& why, FeedEffects* effects);   // this rank leaves
  void Tick(TimeUs now, FeedEffects* effects);
  TimeUs NextTick() const { return over_ ? kNever : answer_due_us_; }

  bool over() const { return over_; }
  absl::Status CheckInvariants() const;

 private:
  void TakePlan(const FeedPlan& plan, TimeUs now, FeedEffects* effects);
  void Enter(FeedEffects* effects);
  void Tell(FeedMessage message, FeedEffects* effects) const;

  const uint64_t epoch_;
  GroupBatch* const batch_;
  const FeedLimits limits_;
  uint64_t last_step_ = 0;  // that was proposed here
  uint64_t last_committed_ = 0;
  std::optional<uint64_t> prepared_;  // and waits for the lead
  TimeUs answer_due_us_ = kNever;     // while one is prepared
  std::optional<uint64_t> here_;      // the step that runs
  bool over_ = false;
};

}  // namespace skein::scheduler
