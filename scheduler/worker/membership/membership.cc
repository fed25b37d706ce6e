#include "scheduler/worker/membership/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {

void Membership::On(const RegisterReplied& event, TimeUs now) {
  const RegisterReply& reply = event.reply;
  if (!calling_ || connected_) return;
  if (!reply.status.ok()) {
    registered_ = false;
    return On(Disconnected{reply.status}, now);
  }
  const bool stale = !reply.generation.MayFollow(seen_) && !SKEIN_PLANT(stale_epoch_accepted);
  if (stale) {  // Due closes the stream; the next hello says why
    last_call_ = absl::FailedPreconditionError(
        absl::StrCat("the orchestrator's generation ", reply.generation.number, " is not above ",
                     seen_.number, ", which this worker has listened to"));
    refused_ = true;
    answer_by_us_ = now;
    return;
  }
  seen_ = reply.generation;
  calling_ = false;
  last_call_ = reply.status;
  TakeEndedHeard();
  registered_ = connected_ = true;
  attempts_failed_ = 0;
  told_draining_ = draining_in_flight_;
  instance_ = reply.instance;
  lease_us_ = std::max<TimeUs>(reply.lease_us, 3);
  next_us_ = now + lease_us_ / 3;
  spacing_end_us_ = now;
}

void Membership::On(const ReportReplied& event, TimeUs now) {
  const ReportReply& reply = event.reply;
  if (!calling_ || event.serial != serial_) return;
  last_call_ = reply.status;
  if (!reply.status.ok()) {  // Due closes the stream: the next one begins with a registration
    registered_ = false;
    answer_by_us_ = now;
    return;
  }
  calling_ = false;
  if (reply.want_full) full_wanted_ = dirty_ = true;
  spacing_end_us_ = now + config_.report_spacing_us +
                    static_cast<TimeUs>(listed_) * config_.report_spacing_per_request_us;
  TakeEndedHeard();
  told_draining_ = draining_in_flight_;
}

void Membership::TakeEndedHeard() {
  ended_.erase(ended_.begin(), ended_.begin() + std::min(ended_in_flight_, ended_.size()));
  ended_in_flight_ = 0;
}

void Membership::On(const Disconnected& event, TimeUs now) {
  if (left_) return;
  if (saying_goodbye_) registered_ = saying_goodbye_ = false;  // it is as good as said
  attempts_failed_ = connected_ ? 0 : attempts_failed_ + 1;
  connected_ = calling_ = refused_ = false;
  if (SKEIN_PLANT(end_lost_over_a_resync)) TakeEndedHeard();
  ended_in_flight_ = 0;
  dirty_ = true;
  last_call_ = event.status;
  const TimeUs first_us = config_.register_retry_us / 8;
  next_us_ = now + std::min(config_.register_retry_us, first_us << std::min(attempts_failed_, 3));
}

absl::Status Membership::CheckEpoch(Epoch epoch) const {
  const uint64_t last = FirstNumberOf(seen_.number + 1) - 1;
  if (epoch.value <= last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch: ", epoch.value, " exceeds ", last,
                   ", the last that this worker's orchestrator can have issued"));
}

void Membership::On(const UnregisterReplied&, TimeUs) {
  if (!saying_goodbye_) return;
  calling_ = saying_goodbye_ = false;
  registered_ = connected_ = false;
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
                                            held_.size(), " were told"));
  }
  for (const auto& [key, change] : changes_) {
    if (held_.count(key) == 0) {
      return absl::InternalError(
          absl::StrCat("Membership: ", ToString(key.first), " changed and is not held"));
    }
  }
  return CheckCall();
}

// The message under way, and what was told with it.
absl::Status Membership::CheckCall() const {
  const auto violated = [](const char* what) {
    return absl::InternalError(absl::StrCat("Membership: ", what));
  };
  if (calling_ && answer_by_us_ == kNever) return violated("an answer is awaited without a limit");
  if (!calling_ && (refused_ || saying_goodbye_)) return violated("no answer is awaited for it");
  if (saying_goodbye_ && !(connected_ && leaving_)) return violated("a goodbye out of place");
  if (refused_ && connected_) return violated("the stream of a refused welcome stands");
  if (connected_ && !registered_ && !calling_) return violated("connected without a registration");
  if (left_ && (calling_ || connected_ || !leaving_)) return violated("it left and has a stream");
  if (ended_.size() > kMaxEnded) return violated("too many ends are remembered");
  if (ended_in_flight_ > (calling_ ? ended_.size() : 0)) {
    return violated("more ends are awaited to be heard than were sent");
  }
  return absl::OkStatus();
}

void Membership::Ended(EndedRequest ended) {
  Drop(ended.id, ended.epoch);
  ended_.push_back(std::move(ended));
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
    if (ended_in_flight_ > 0) --ended_in_flight_;
  }
  dirty_ = true;
}

bool Membership::OrderDrain(bool drain) {
  if (ordered_ == drain) return false;
  const bool before = draining();
  ordered_ = drain;
  dirty_ = true;
  return draining() && !before;
}

bool Membership::ReportDue(TimeUs now) const {
  return now >= spacing_end_us_ && (dirty_ || now >= next_us_);
}

void Membership::Await(TimeUs now) {
  calling_ = true;
  answer_by_us_ = now + config_.answer_timeout_us;
}

std::optional<MembershipEffect> Membership::Close(TimeUs now) {
  const bool refused = std::exchange(refused_, false) || (!registered_ && connected_);
  On(Disconnected{refused ? last_call_
                          : absl::DeadlineExceededError("the orchestrator does not answer")},
     now);
  return CloseStream{};
}

std::optional<MembershipEffect> Membership::Register(WorkerLoad load, std::vector<HeldRequest> held,
                                                     TimeUs now) {
  Await(now);
  dirty_ = full_wanted_ = false;
  ended_in_flight_ = ended_.size();
  changes_.clear();
  gone_.clear();
  load.draining = draining_in_flight_ = draining();
  return CallRegister{RegisterRequest{.identity = config_.identity,
                                      .held = std::move(held),
                                      .ended = {ended_.begin(), ended_.end()},
                                      .load = std::move(load),
                                      .seen = seen_}};
}

// All but what is held.
ReportRequest Membership::ReportOf(WorkerLoad load, TimeUs now) {
  Await(now);
  dirty_ = full_wanted_ = false;
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
  if (connected_) {
    Await(now);
    saying_goodbye_ = true;
    return CallUnregister{{instance_, config_.identity.incarnation}};
  }
  left_ = true;
  return Drained{};
}

TimeUs Membership::NextDeadline() const {
  if (left_) return kNever;
  if (calling_) return answer_by_us_;
  if (!connected_) return next_us_;
  return dirty_ ? spacing_end_us_ : std::max(next_us_, spacing_end_us_);
}

}  // namespace skein::scheduler
