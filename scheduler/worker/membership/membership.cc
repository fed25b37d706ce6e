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
  TakeEndedHeard();
  registered_ = true;
  backoff_.Succeeded();
  told_draining_ = draining_in_flight_;
  instance_ = reply.instance;
  lease_us_ = std::max<TimeUs>(reply.lease_us, 3);
  next_us_ = now + lease_us_ / 3;
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
  TakeEndedHeard();
  told_draining_ = draining_in_flight_;
}

void Membership::Refuse(absl::Status why, TimeUs now) {
  last_call_ = std::move(why);
  phase_ = Phase::kRefused;
  answer_by_us_ = now;
}

void Membership::TakeEndedHeard() {
  ended_.erase(ended_.begin(), ended_.begin() + std::min(ended_in_flight_, ended_.size()));
  ended_in_flight_ = 0;
}

void Membership::On(const Disconnected& event, TimeUs now) {
  if (phase_ == Phase::kLeft) return;
  if (phase_ == Phase::kParting) registered_ = false;  // it is as good as said
  phase_ = Phase::kAway;
  if (SKEIN_PLANT(end_lost_over_a_resync)) TakeEndedHeard();
  ended_in_flight_ = 0;
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

void Membership::Holds(const HeldRequest& held, TimeUs chunk_since_us) {
  if (held_.emplace(held.id, held.epoch).second) digest_.Add(held.id, held.epoch);
  changes_[{held.id, held.epoch}] = {held, chunk_since_us};
}

bool Membership::Drop(RequestId id, Epoch epoch) {
  if (held_.erase({id, epoch}) == 0) return false;
  digest_.Remove(id, epoch);
  changes_.erase({id, epoch});
  return true;
}

void Membership::Gone(RequestId id, Epoch epoch) {
  if (Drop(id, epoch)) gone_.push_back({.id = id, .epoch = epoch});
}

absl::Status Membership::CheckInvariants(const std::vector<HeldRequest>& held) const {
  std::set<Key> keys;
  for (const HeldRequest& one : held) keys.emplace(one.id, one.epoch);
  if (keys != held_ || DigestOf(held) != digest_.value()) {
    return absl::InternalError(absl::StrCat("Membership: ", held.size(), " requests are held, ",
                                            held_.size(), " were reported"));
  }
  for (const auto& [key, change] : changes_) {
    if (held_.count(key) == 0) {
      return absl::InternalError(absl::StrCat("Membership: ", ToString(key.first),
                                              " has a change to report but is not held"));
    }
  }
  return CheckCall();
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
  if (goes && !leaving_) return violated("it leaves without an order");
  if (connected() && !registered_) return violated("connected without a registration");
  if (ended_.size() > kMaxEnded) return violated("too many ends are remembered");
  if (ended_in_flight_ > (awaits ? ended_.size() : 0)) {
    return violated("more ends await an answer than were sent");
  }
  return absl::OkStatus();
}

bool Membership::HasEvidence(TimeUs now) const {
  if (now >= std::min(evidence_end_us_, evidence_limit_us_)) return false;
  return std::any_of(ended_.begin(), ended_.end(),
                     [](const EndedRequest& one) { return one.engine_failed; });
}

void Membership::Ended(EndedRequest ended, TimeUs deadline_us) {
  Drop(ended.id, ended.epoch);
  if (ended.engine_failed) evidence_end_us_ = std::max(evidence_end_us_, deadline_us);
  ended_.push_back(std::move(ended));
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
    if (ended_in_flight_ > 0) --ended_in_flight_;
  }
  ReportSoon();
}

bool Membership::OrderDrain(bool drain) {
  if (ordered_ == drain) return false;
  const bool before = draining();
  ordered_ = drain;
  ReportSoon();
  return draining() && !before;
}

bool Membership::ReportDue(TimeUs now) const {
  return now >= spacing_end_us_ && (wanted_ != Report::kInTime || now >= next_us_);
}

// The stream may be half-open: only this side believes in it. Reports go out every third of the
// lease, so a report that is not answered within half of it leaves time to open another stream
// before the orchestrator gives this instance up. A registration may be long, so it has more time.
void Membership::Await(Phase phase, TimeUs now) {
  phase_ = phase;
  const TimeUs patience_us = config_.answer_timeout_us;
  answer_by_us_ =
      now + (phase == Phase::kReporting ? std::min(patience_us, lease_us_ / 2) : patience_us);
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
  ended_in_flight_ = ended_.size();
  changes_.clear();
  gone_.clear();
  load.draining = draining_in_flight_ = draining();
  return CallRegister{RegisterRequest{.identity = config_.identity,
                                      .held = std::move(held),
                                      .ended = {ended_.begin(), ended_.end()},
                                      .load = std::move(load),
                                      .seen = seen_,
                                      .stream = ++streams_}};
}

// All but what is held.
ReportRequest Membership::ReportOf(WorkerLoad load, TimeUs now) {
  Await(Phase::kReporting, now);
  wanted_ = Report::kInTime;
  next_us_ = now + lease_us_ / 3;
  ended_in_flight_ = ended_.size();
  load.draining = draining_in_flight_ = draining();
  return {.instance = instance_,
          .incarnation = config_.identity.incarnation,
          .serial = ++serial_,
          .load = std::move(load),
          .held = {},
          .ended = {ended_.begin(), ended_.end()},
          .gone = std::exchange(gone_, {}),
          .held_digest = digest_.value()};
}

std::optional<MembershipEffect> Membership::ReportFull(WorkerLoad load,
                                                       std::vector<HeldRequest> held, TimeUs now) {
  ReportRequest report = ReportOf(std::move(load), now);
  report.full = true;
  report.held = std::move(held);
  changes_.clear();
  listed_ = report.held.size() + ended_.size();
  return CallReport{std::move(report)};
}

std::optional<MembershipEffect> Membership::ReportChanges(WorkerLoad load, TimeUs now) {
  ReportRequest report = ReportOf(std::move(load), now);
  for (auto& [key, change] : changes_) {
    if (change.chunk_since_us != kNever) change.held.chunk_running_us = now - change.chunk_since_us;
    report.held.push_back(change.held);
  }
  changes_.clear();
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
  return wanted_ != Report::kInTime ? spacing_end_us_ : std::max(next_us_, spacing_end_us_);
}

}  // namespace skein::scheduler
