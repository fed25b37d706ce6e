#include "scheduler/router/orchestrator_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void OrchestratorSession::Join(RouterIdentity identity, TimeUs now) {
  identity_ = std::move(identity);
  joined_ = true;
  next_us_ = now;
}

bool OrchestratorSession::OnWelcomed(const RouterWelcome& welcome, TimeUs now) {
  if (awaits_ != Awaits::kWelcome) return false;
  absl::Status refused = welcome.status;
  const bool stale = !welcome.generation.MayFollow(seen_) && !SKEIN_PLANT(stale_epoch_accepted);
  if (refused.ok() && stale) {
    refused = absl::FailedPreconditionError(
        absl::StrCat("the orchestrator's generation ", welcome.generation.number, " is not above ",
                     seen_.number, ", which this router has listened to"));
  }
  if (!refused.ok()) {
    broken_ = std::move(refused);
    refused_ = true;
    answer_by_us_ = now;
    return false;
  }
  awaits_ = Awaits::kNothing;
  ready_ = true;
  attempts_failed_ = 0;
  seen_ = welcome.generation;
  lease_us_ = std::max<TimeUs>(welcome.lease_us, 3);
  next_us_ = now + std::min(config_.report_us, lease_us_ / 3);
  EndsWereHeard();
  return true;
}

void OrchestratorSession::OnReportTaken(TimeUs now) {
  if (awaits_ != Awaits::kReportTaken) return;
  awaits_ = Awaits::kNothing;
  spacing_end_us_ = now + config_.report_spacing_us;
  EndsWereHeard();
}

void OrchestratorSession::OnGoodbyeTaken() {
  if (awaits_ != Awaits::kGoodbyeTaken) return;
  awaits_ = Awaits::kNothing;
  ready_ = false;
  EndsWereHeard();
}

// What was said in a goodbye is as good as heard: the stream's end says the same.
void OrchestratorSession::OnBroken(const absl::Status& status, TimeUs now) {
  if (!joined_ || left_) return;
  attempts_failed_ = ready_ ? 0 : attempts_failed_ + 1;
  ready_ = refused_ = false;
  awaits_ = Awaits::kNothing;
  ended_asked_ = 0;
  broken_ = status;
  const TimeUs first_us = config_.retry_us / 8;
  next_us_ = now + std::min(config_.retry_us, first_us << std::min(attempts_failed_, 3));
}

bool OrchestratorSession::Ended(RouterEnd end) {
  ended_.push_back(std::move(end));
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
    if (ended_asked_ > 0) --ended_asked_;
  }
  return ready_ || awaits_ == Awaits::kWelcome;
}

void OrchestratorSession::EndsWereHeard() {
  ended_.erase(ended_.begin(),
               ended_.begin() + static_cast<std::ptrdiff_t>(std::min(ended_asked_, ended_.size())));
  ended_asked_ = 0;
}

void OrchestratorSession::Await(Awaits what, TimeUs now) {
  awaits_ = what;
  answer_by_us_ = now + config_.answer_timeout_us;
  ended_asked_ = ended_.size();
}

std::optional<SessionEffect> OrchestratorSession::Close(TimeUs now) {
  const absl::Status silent = absl::DeadlineExceededError("the orchestrator does not answer");
  OnBroken(std::exchange(refused_, false) ? broken_ : silent, now);
  return CloseLink{};
}

std::optional<SessionEffect> OrchestratorSession::Open(RouterLoad load,
                                                       std::vector<RouterRequest> requests,
                                                       TimeUs now) {
  Await(Awaits::kWelcome, now);
  return OpenLink{RouterHello{.identity = identity_,
                              .seen = seen_,
                              .load = load,
                              .requests = std::move(requests),
                              .ended = {ended_.begin(), ended_.end()}}};
}

std::optional<SessionEffect> OrchestratorSession::Report(RouterLoad load, TimeUs now) {
  Await(Awaits::kReportTaken, now);
  dirty_ = false;
  next_us_ = now + std::min(config_.report_us, lease_us_ / 3);
  return SendRouterReport{load};
}

std::optional<SessionEffect> OrchestratorSession::SayGoodbye(TimeUs now) {
  if (ready_) {
    Await(Awaits::kGoodbyeTaken, now);
    return SendRouterGoodbye{};
  }
  left_ = true;
  return RouterHasLeft{};
}

TimeUs OrchestratorSession::NextDeadline() const {
  if (!joined_ || left_) return kNever;
  if (awaits_ != Awaits::kNothing) return answer_by_us_;
  if (leaving_) return 0;
  if (!ready_) return next_us_;
  return dirty_ ? spacing_end_us_ : std::max(next_us_, spacing_end_us_);
}

absl::Status OrchestratorSession::CheckInvariants() const {
  const auto violated = [](const char* what) {
    return absl::InternalError(absl::StrCat("OrchestratorSession: ", what));
  };
  const bool awaits = awaits_ != Awaits::kNothing;
  if (awaits && answer_by_us_ == kNever) return violated("an answer is awaited without a limit");
  if (awaits && ready_ == (awaits_ == Awaits::kWelcome)) {
    return violated("the awaited answer does not fit the stream's state");
  }
  if ((awaits || ready_) && (!joined_ || left_)) return violated("a stream before Join or after");
  if (refused_ && awaits_ != Awaits::kWelcome) return violated("a refused welcome is not closed");
  if (left_ && !leaving_) return violated("it left without being told to");
  if (ended_.size() > kMaxEnded) return violated("too many ends are remembered");
  if (ended_asked_ > (awaits ? ended_.size() : 0)) {
    return violated("more ends are awaited to be heard than were sent");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
