#include "scheduler/worker/membership/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void Membership::On(const RegisterReplied& event, TimeUs now) {
  const RegisterReply& reply = event.reply;
  if (phase_ != Phase::kGreeting) return;
  if (!reply.status.ok()) {
    registered_ = false;
    return On(Disconnected{reply.status}, now);
  }
  const bool stale = !reply.generation.MayFollow(seen_) && !SKEIN_PLANT(stale_epoch_accepted);
  if (stale) {  // Due closes the stream; the next hello says why
    return Refuse(absl::FailedPreconditionError(absl::StrCat(
                      "the orchestrator's generation ", reply.generation.number, " is not above ",
                      seen_.number, ", the latest that this worker has followed")),
                  now);
  }
  seen_ = reply.generation;
  phase_ = Phase::kReady;
  last_call_ = reply.status;
  ended_.Answered();
  registered_ = true;
  backoff_.Succeeded();
  told_draining_ = draining_in_flight_;
  instance_ = reply.instance;
  lease_us_ = std::max<TimeUs>(reply.lease_us, 3);
  next_us_ = now + lease_us_ / 6;
  spacing_end_us_ = now;
}

void Membership::On(const ReportReplied& event, TimeUs now) {
  const ReportReply& reply = event.reply;
  if (phase_ != Phase::kReporting || event.serial != serial_) return;
  if (!reply.status.ok()) {  // the next stream begins with a registration
    registered_ = false;
    return Refuse(reply.status, now);
  }
  last_call_ = reply.status;
  phase_ = Phase::kReady;
  if (reply.want_full) wanted_ = Report::kFull;
  spacing_end_us_ = now + config_.report_spacing_us +
                    static_cast<TimeUs>(listed_) * config_.report_spacing_per_request_us;
  ended_.Answered();
  told_draining_ = draining_in_flight_;
}

void Membership::Refuse(absl::Status why, TimeUs now) {
  last_call_ = std::move(why);
  phase_ = Phase::kRefused;
  answer_by_us_ = now;
}

void Membership::On(const Disconnected& event, TimeUs now) {
  if (phase_ == Phase::kLeft) return;
  if (phase_ == Phase::kParting) registered_ = false;  // it is as good as said
  phase_ = Phase::kAway;
  if (SKEIN_PLANT(end_lost_over_a_resync)) ended_.Answered();
  ended_.Unanswered();
  ReportSoon();
  last_call_ = event.status;
  next_us_ = now + backoff_.Failed();
}

absl::Status Membership::CheckEpoch(Epoch epoch) const {
  const uint64_t last = FirstNumberOf(seen_.number + 1) - 1;
  if (epoch.value <= last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch: ", epoch.value, " exceeds ", last,
                   ", the last that this worker's orchestrator can have issued"));
}

void Membership::On(const UnregisterReplied&, TimeUs) {
  if (phase_ != Phase::kParting) return;
  phase_ = Phase::kAway;
  registered_ = false;
}

absl::Status Membership::CheckInvariants(const std::vector<HeldRequest>& held) const {
  absl::Status found = held_.CheckInvariants(held);
  if (found.ok()) found = ended_.CheckInvariants();
  return found.ok() ? CheckCall() : found;
}

// The message under way, and what was told with it.
absl::Status Membership::CheckCall() const {
  const auto violated = [](const char* what) {
    return absl::InternalError(absl::StrCat("Membership: ", what));
  };
  const bool awaits = AwaitsAnswer();
  const bool goes = phase_ == Phase::kParting || phase_ == Phase::kLeft;
  if (awaits && answer_by_us_ == kNever) {
    return violated("an answer is awaited without a time limit");
  }
  if (goes && !leaving()) return violated("it is leaving, but was not told to stop");
  if (connected() && !registered_) return violated("connected without a registration");
  if (ended_.unanswered() > 0 && !awaits) {
    return violated("ends are marked as sent, but no message awaits an answer");
  }
  return absl::OkStatus();
}

void Membership::Ended(EndedRequest ended, TimeUs alive_until_us) {
  held_.Drop(ended.id, ended.epoch);
  ended_.Add(std::move(ended), alive_until_us);
  ReportSoon();
}

bool Membership::OrderDrain(bool drain) {
  if (leaving() || draining() == drain) return false;
  drain_ = drain ? Drain::kOrdered : Drain::kNone;
  ReportSoon();
  return drain;
}

void Membership::NoteWanted(TimeUs now) {
  if (wanted_ == Report::kInTime || soon_us_ != kNever) return;
  soon_us_ = now + config_.report_spacing_us;
}

bool Membership::ReportDue(TimeUs now) const {
  return now >= spacing_end_us_ && now >= std::min(soon_us_, next_us_);
}

// The stream may be half-open: only this side believes in it. Or the leader stands still, and
// another one leads meanwhile. Reports go out every sixth of the lease. So one that is not answered
// within a third of it is found half a lease after the last answer, which leaves time to open
// another stream before the orchestrator gives this instance up. A registration may be long, so it
// has more time.
void Membership::Await(Phase phase, TimeUs now) {
  phase_ = phase;
  const TimeUs patience_us = config_.answer_timeout_us;
  answer_by_us_ =
      now + (phase == Phase::kReporting ? std::min(patience_us, lease_us_ / 3) : patience_us);
}

std::optional<MembershipEffect> Membership::Close(TimeUs now) {
  const absl::Status silent = absl::DeadlineExceededError("the orchestrator does not answer");
  On(Disconnected{phase_ == Phase::kRefused ? absl::Status(last_call_) : silent}, now);
  return CloseStream{};
}

std::optional<MembershipEffect> Membership::Register(WorkerLoad load, std::vector<HeldRequest> held,
                                                     TimeUs now) {
  Await(Phase::kGreeting, now);
  wanted_ = Report::kInTime;
  soon_us_ = kNever;
  held_.AllTold();
  load.draining = draining_in_flight_ = draining();
  return CallRegister{RegisterRequest{.identity = config_.identity,
                                      .held = std::move(held),
                                      .ended = ended_.Send(),
                                      .load = std::move(load),
                                      .seen = seen_,
                                      .stream = ++streams_}};
}

// All but what is held.
ReportRequest Membership::ReportOf(WorkerLoad load, TimeUs now) {
  Await(Phase::kReporting, now);
  wanted_ = Report::kInTime;
  soon_us_ = kNever;
  next_us_ = now + lease_us_ / 6;
  load.draining = draining_in_flight_ = draining();
  return {.instance = instance_,
          .incarnation = config_.identity.incarnation,
          .serial = ++serial_,
          .load = std::move(load),
          .held = {},
          .ended = ended_.Send(),
          .gone = held_.TakeGone(),
          .held_digest = held_.digest()};
}

std::optional<MembershipEffect> Membership::ReportFull(WorkerLoad load,
                                                       std::vector<HeldRequest> held, TimeUs now) {
  ReportRequest report = ReportOf(std::move(load), now);
  report.full = true;
  report.held = std::move(held);
  held_.ListTold();
  listed_ = report.held.size() + ended_.size();
  return CallReport{std::move(report)};
}

std::optional<MembershipEffect> Membership::ReportChanges(WorkerLoad load, TimeUs now) {
  ReportRequest report = ReportOf(std::move(load), now);
  report.held = held_.TakeChanges(now);
  listed_ = report.held.size() + report.gone.size() + ended_.size();
  return CallReport{std::move(report)};
}

std::optional<MembershipEffect> Membership::Leave(TimeUs now) {
  if (phase_ == Phase::kReady) {
    Await(Phase::kParting, now);
    return CallUnregister{{instance_, config_.identity.incarnation}};
  }
  phase_ = Phase::kLeft;
  return Drained{};
}

TimeUs Membership::NextDeadline() const {
  if (phase_ == Phase::kLeft) return kNever;
  if (AwaitsAnswer()) return answer_by_us_;
  if (phase_ == Phase::kAway) return MayRegister() ? next_us_ : kNever;
  return std::max(spacing_end_us_, std::min(soon_us_, next_us_));
}

}  // namespace skein::scheduler
