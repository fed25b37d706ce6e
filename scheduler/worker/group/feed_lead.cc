#include "scheduler/worker/group/feed_lead.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr size_t kAheadMax = 2;  // steps that not every rank has ended

}  // namespace

FeedLead::FeedLead(uint64_t epoch, int ranks, GroupBatch* batch, const FeedLimits& limits)
    : epoch_(epoch),
      ranks_(ranks),
      batch_(batch),
      limits_(limits),
      free_blocks_(static_cast<size_t>(ranks), 0),
      counted_(static_cast<size_t>(ranks), 0),
      own_tokens_(static_cast<size_t>(ranks), 0) {
  SKEIN_CHECK(ranks >= 2);
}

bool FeedLead::MayPropose() const {
  return !over_ && awaited_.empty() && running_.size() < kAheadMax;
}

absl::Status FeedLead::Propose(FeedPlan plan, TimeUs now, FeedEffects* effects) {
  SKEIN_CHECK(MayPropose());
  plan.epoch = epoch_;
  plan.step = last_step_ + 1;
  const absl::Status prepared = batch_->Prepare(plan);
  if (!prepared.ok()) return prepared;
  ++last_step_;
  for (int rank = 1; rank < ranks_; ++rank) awaited_.insert(rank);
  answer_due_us_ = now + limits_.answer_us;
  SendToMembers(ranks_, std::move(plan), effects);
  return absl::OkStatus();
}

void FeedLead::Take(int rank, const FeedMessage& message, TimeUs, FeedEffects* effects) {
  const uint64_t epoch = std::visit([](const auto& one) { return one.epoch; }, message);
  if (over_ || epoch != epoch_ || rank < 1 || rank >= ranks_) return;
  if (const auto* ready = std::get_if<FeedReady>(&message)) return TakeReady(rank, *ready, effects);
  if (const auto* refusal = std::get_if<FeedRefusal>(&message)) {
    return TakeRefusal(rank, *refusal, effects);
  }
  if (const auto* done = std::get_if<FeedDone>(&message)) return TakeDone(rank, *done, effects);
  if (const auto* own = std::get_if<FeedOwn>(&message)) {
    own_tokens_[static_cast<size_t>(rank)] = own->own_tokens;
    return;
  }
  if (const auto* end = std::get_if<FeedEnd>(&message)) return Lost(rank, end->why, effects);
  Lost(rank, absl::InternalError("it sent a message that only the lead may send"), effects);
}

void FeedLead::TakeReady(int rank, const FeedReady& ready, FeedEffects* effects) {
  // A refusal of another member may have ended the proposal.
  if (ready.step != last_step_ || awaited_.erase(rank) == 0 || !awaited_.empty()) return;
  answer_due_us_ = kNever;
  batch_->Commit();
  free_blocks_[0] = batch_->free_blocks();
  running_[last_step_].step = last_step_;
  SendToMembers(ranks_, FeedGo{epoch_, last_step_}, effects);
  effects->push_back(StepCommitted{last_step_});
  Enter(effects);
}

void FeedLead::TakeRefusal(int rank, const FeedRefusal& refusal, FeedEffects* effects) {
  free_blocks_[static_cast<size_t>(rank)] = refusal.free_blocks;
  if (refusal.step != last_step_ || awaited_.count(rank) == 0) return;
  awaited_.clear();
  answer_due_us_ = kNever;
  batch_->Cancel();
  for (int other = 1; other < ranks_; ++other) {
    if (other != rank) effects->push_back(SendFeed{other, FeedCancel{epoch_, refusal.step}});
  }
  effects->push_back(StepRefused{refusal.step, rank, refusal.why, refusal.free_blocks});
}

void FeedLead::Enter(FeedEffects* effects) {
  if (here_.has_value()) return;
  std::optional<GroupStep> step = batch_->Begin();
  if (!step.has_value()) return;
  here_ = step->step;
  effects->push_back(EnterGroupStep{*std::move(step)});
}

void FeedLead::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                         TimeUs now, FeedEffects* effects) {
  SKEIN_CHECK(here_.has_value());
  const uint64_t step = *here_;
  here_.reset();
  if (over_ || !status.ok()) batch_->Fail();
  if (over_) return;
  if (!status.ok()) {
    return End(absl::UnavailableError(
                   absl::StrCat("the step failed at rank 0: ", std::string(status.message()))),
               effects);
  }
  const uint64_t digest = batch_->End(sampled);
  free_blocks_[0] = batch_->free_blocks();
  running_.at(step).due_us = now + limits_.step_us;
  NoteDone(0, step, digest, effects);
  if (!over_) Enter(effects);
}

void FeedLead::TakeDone(int rank, const FeedDone& done, FeedEffects* effects) {
  free_blocks_[static_cast<size_t>(rank)] = done.free_blocks;
  counted_[static_cast<size_t>(rank)] = done.counted;
  own_tokens_[static_cast<size_t>(rank)] = done.own_tokens;
  done.own_waits ? (void)own_waits_.insert(rank) : (void)own_waits_.erase(rank);
  const auto running = running_.find(done.step);
  if (running == running_.end() || running->second.digests.contains(rank)) {
    return Lost(rank, absl::InternalError("it reported the end of a step that it does not run"),
                effects);
  }
  NoteDone(rank, done.step, done.digest, effects);
}

void FeedLead::NoteDone(int rank, uint64_t step, uint64_t digest, FeedEffects* effects) {
  Running& running = running_.at(step);
  running.digests[rank] = digest;
  for (const auto& [other, theirs] : running.digests) {
    if (theirs == digest) continue;
    return End(absl::InternalError(absl::StrCat("ranks ", std::min(rank, other), " and ",
                                                std::max(rank, other),
                                                " sampled different tokens in step ", step)),
               effects);
  }
  if (static_cast<int>(running.digests.size()) < ranks_) return;
  running_.erase(step);
  effects->push_back(StepCompleted{step, free_blocks_, counted_, own_tokens_, !own_waits_.empty()});
}

void FeedLead::Lost(int rank, const absl::Status& why, FeedEffects* effects) {
  End(absl::UnavailableError(absl::StrCat("rank ", rank, ": ", std::string(why.message()))),
      effects);
}

void FeedLead::End(const absl::Status& why, FeedEffects* effects) {
  if (std::exchange(over_, true)) return;
  awaited_.clear();
  answer_due_us_ = kNever;
  running_.clear();
  SendToMembers(ranks_, FeedEnd{epoch_, why}, effects);
  effects->push_back(GroupFailed{why});
}

void FeedLead::Tick(TimeUs now, FeedEffects* effects) {
  if (over_) return;
  if (now >= answer_due_us_) {
    return Lost(*awaited_.begin(), absl::DeadlineExceededError("it did not answer in time"),
                effects);
  }
  for (const auto& [step, running] : running_) {
    if (now < running.due_us) continue;
    for (int rank = 1; rank < ranks_; ++rank) {
      if (running.digests.contains(rank)) continue;
      return Lost(rank, absl::DeadlineExceededError("its step did not end in time"), effects);
    }
  }
}

TimeUs FeedLead::NextTick() const {
  TimeUs next = answer_due_us_;
  for (const auto& [step, running] : running_) next = std::min(next, running.due_us);
  return over_ ? kNever : next;
}

absl::Status FeedLead::CheckInvariants() const {
  if (awaited_.empty() != (answer_due_us_ == kNever)) {
    return absl::InternalError("FeedLead 1: the time limit does not fit the awaited answers");
  }
  if (running_.size() > kAheadMax) return absl::InternalError("FeedLead 2: too many steps run");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
