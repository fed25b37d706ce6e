#include "scheduler/worker/group/feed_member.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

FeedMember::FeedMember(uint64_t epoch, GroupBatch* batch, const FeedLimits& limits)
    : epoch_(epoch), batch_(batch), limits_(limits) {}

void FeedMember::Tell(FeedMessage message, FeedEffects* effects) const {
  effects->push_back(SendFeed{0, std::move(message)});
}

void FeedMember::Take(const FeedMessage& message, TimeUs now, FeedEffects* effects) {
  const uint64_t epoch = std::visit([](const auto& one) { return one.epoch; }, message);
  if (over_ || epoch != epoch_) return;
  if (const auto* plan = std::get_if<FeedPlan>(&message)) return TakePlan(*plan, now, effects);
  if (const auto* end = std::get_if<FeedEnd>(&message)) return Lost(end->why, effects);
  const auto* go = std::get_if<FeedGo>(&message);
  const auto* cancel = std::get_if<FeedCancel>(&message);
  // A member that refused a plan has nothing to cancel, and its refusal may have met another's.
  if (cancel != nullptr && !prepared_.has_value() && cancel->step == last_step_) return;
  const uint64_t step = go != nullptr ? go->step : cancel != nullptr ? cancel->step : 0;
  if (prepared_ != step) {
    return End(absl::InternalError(absl::StrCat("the lead starts or cancels step ", step,
                                                ", which is not prepared here")),
               effects);
  }
  prepared_.reset();
  answer_due_us_ = kNever;
  if (cancel != nullptr) return batch_->Cancel();
  last_committed_ = step;
  batch_->Commit();
  Enter(effects);
}

void FeedMember::TakePlan(const FeedPlan& plan, TimeUs now, FeedEffects* effects) {
  if (plan.step != last_step_ + 1 || prepared_.has_value()) {
    return End(absl::InternalError(
                   absl::StrCat("the lead proposes step ", plan.step, " after ", last_step_)),
               effects);
  }
  last_step_ = plan.step;
  const absl::Status prepared = batch_->Prepare(plan);
  if (!prepared.ok()) {
    return Tell(FeedRefusal{epoch_, plan.step, batch_->free_blocks(), prepared}, effects);
  }
  prepared_ = plan.step;
  answer_due_us_ = now + limits_.answer_us;
  Tell(FeedReady{epoch_, plan.step}, effects);
}

void FeedMember::Enter(FeedEffects* effects) {
  if (here_.has_value()) return;
  std::optional<GroupStep> step = batch_->Begin();
  if (!step.has_value()) return;
  here_ = step->step;
  effects->push_back(EnterGroupStep{*std::move(step)});
}

void FeedMember::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                           int64_t own_tokens, bool own_waits, FeedEffects* effects) {
  SKEIN_CHECK(here_.has_value());
  const uint64_t step = *here_;
  here_.reset();
  if (over_ || !status.ok()) batch_->Fail();
  if (over_) return;
  if (!status.ok()) {
    return End(
        absl::UnavailableError(absl::StrCat("the step failed: ", std::string(status.message()))),
        effects);
  }
  const uint64_t digest = batch_->End(sampled);
  Tell(FeedDone{epoch_, step, batch_->free_blocks(), prepared_.value_or(last_committed_),
                own_tokens, digest, own_waits},
       effects);
  Enter(effects);
}

void FeedMember::Lost(const absl::Status& why, FeedEffects* effects) {
  if (std::exchange(over_, true)) return;
  effects->push_back(GroupFailed{why});
}

void FeedMember::End(const absl::Status& why, FeedEffects* effects) {
  if (over_) return;
  Tell(FeedEnd{epoch_, why}, effects);
  Lost(why, effects);
}

void FeedMember::Tick(TimeUs now, FeedEffects* effects) {
  if (over_ || now < answer_due_us_) return;
  End(absl::DeadlineExceededError("the lead did not start or cancel a step in time"), effects);
}

absl::Status FeedMember::CheckInvariants() const {
  if (prepared_.has_value() == (answer_due_us_ != kNever)) return absl::OkStatus();
  return absl::InternalError("FeedMember 1: the time limit does not fit the prepared plan");
}

}  // namespace skein::scheduler
