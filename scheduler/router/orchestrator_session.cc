#include "scheduler/router/orchestrator_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void OrchestratorSession::Join(RouterIdentity identity, TimeUs now) {
  identity_ = std::move(identity);
  phase_ = Phase::kAway;
  next_us_ = now;
}

bool OrchestratorSession::OnWelcomed(const RouterWelcome& welcome, TimeUs now) {
  if (phase_ != Phase::kGreeting) return false;
  absl::Status refused = welcome.status;
  const bool stale = !welcome.generation.MayFollow(seen_) && !SKEIN_PLANT(stale_epoch_accepted);
  if (refused.ok() && stale) {
    refused = absl::FailedPreconditionError(
        absl::StrCat("the orchestrator's generation ", welcome.generation.number, " is not above ",
                     seen_.number, ", the latest that this router has followed"));
  }
  if (!refused.ok()) {
    broken_ = std::move(refused);
    phase_ = Phase::kRefused;
    answer_by_us_ = now;
    return false;
  }
  phase_ = Phase::kReady;
  backoff_.Succeeded();
  seen_ = welcome.generation;
  lease_us_ = std::max<TimeUs>(welcome.lease_us, 3);
  next_us_ = now + std::min(config_.report_us, lease_us_ / 3);
  EndsWereHeard();
  return true;
}

void OrchestratorSession::OnReportTaken(TimeUs now) {
  if (phase_ != Phase::kReporting) return;
  phase_ = Phase::kReady;
  spacing_end_us_ = now + config_.report_spacing_us;
  EndsWereHeard();
}

void OrchestratorSession::OnGoodbyeTaken() {
  if (phase_ != Phase::kParting) return;
  phase_ = Phase::kAway;
  EndsWereHeard();
}

// What was said in a goodbye is as good as heard: the stream's end says the same.
void OrchestratorSession::OnBroken(const absl::Status& status, TimeUs now) {
  if (phase_ == Phase::kOutside || phase_ == Phase::kLeft) return;
  phase_ = Phase::kAway;
  ended_asked_ = 0;
  broken_ = status;
  next_us_ = now + backoff_.Failed();
}

bool OrchestratorSession::Ended(RouterEnd end) {
  ended_.push_back(std::move(end));
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
    if (ended_asked_ > 0) --ended_asked_;
  }
  return ready() || phase_ == Phase::kGreeting;
}

void OrchestratorSession::EndsWereHeard() {
  ended_.erase(ended_.begin(),
               ended_.begin() + static_cast<std::ptrdiff_t>(std::min(ended_asked_, ended_.size())));
  ended_asked_ = 0;
}

// The stream may be half-open: only this side believes in it. Or the leader stands still, and
// another one leads meanwhile. A report that is not answered within a third of the lease leaves
// time to open another stream before the orchestrator gives this router up. A hello may be long, so
// it has more time.
void OrchestratorSession::Await(Phase phase, TimeUs now) {
  phase_ = phase;
  const TimeUs patience_us = config_.answer_timeout_us;
  answer_by_us_ =
      now + (phase == Phase::kReporting ? std::min(patience_us, lease_us_ / 3) : patience_us);
  ended_asked_ = ended_.size();
}

std::optional<SessionEffect> OrchestratorSession::Close(TimeUs now) {
  const absl::Status silent = absl::DeadlineExceededError("the orchestrator does not answer");
  OnBroken(phase_ == Phase::kRefused ? absl::Status(broken_) : silent, now);
  return CloseLink{};
}

std::optional<SessionEffect> OrchestratorSession::Open(RouterLoad load,
                                                       std::vector<RouterRequest> requests,
                                                       TimeUs now) {
  Await(Phase::kGreeting, now);
  return OpenLink{RouterHello{.identity = identity_,
                              .seen = seen_,
                              .load = load,
                              .requests = std::move(requests),
                              .ended = {ended_.begin(), ended_.end()},
                              .stream = ++streams_}};
}

std::optional<SessionEffect> OrchestratorSession::Report(RouterLoad load, TimeUs now) {
  Await(Phase::kReporting, now);
  dirty_ = false;
  next_us_ = now + std::min(config_.report_us, lease_us_ / 3);
  return SendRouterReport{load};
}

std::optional<SessionEffect> OrchestratorSession::SayGoodbye(TimeUs now) {
  if (phase_ == Phase::kReady) {
    Await(Phase::kParting, now);
    return SendRouterGoodbye{};
  }
  phase_ = Phase::kLeft;
  return RouterHasLeft{};
}

TimeUs OrchestratorSession::NextDeadline() const {
  if (phase_ == Phase::kOutside || phase_ == Phase::kLeft) return kNever;
  if (AwaitsAnswer()) return answer_by_us_;
  if (leaving_) return 0;
  if (phase_ == Phase::kAway) return next_us_;
  return dirty_ ? spacing_end_us_ : std::max(next_us_, spacing_end_us_);
}

absl::Status OrchestratorSession::CheckInvariants() const {
  const auto violated = [](const char* what) {
    return absl::InternalError(absl::StrCat("OrchestratorSession: ", what));
  };
  const bool awaits = AwaitsAnswer();
  const bool goes = phase_ == Phase::kParting || phase_ == Phase::kLeft;
  if (awaits && answer_by_us_ == kNever) {
    return violated("an answer is awaited without a time limit");
  }
  if (goes && !leaving_) return violated("it is leaving, but was not told to stop");
  if (ended_.size() > kMaxEnded) return violated("too many ends are remembered");
  if (ended_asked_ > (awaits ? ended_.size() : 0)) {
    return violated("more ends await an answer than were sent");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
