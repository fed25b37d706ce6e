#include "scheduler/worker/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void Membership::OnRegistered(const RegisterReply& reply, TimeUs now) {
  calling_ = false;
  last_call_ = reply.status;
  if (!reply.status.ok()) {
    next_us_ = now + config_.register_retry_us;
    return;
  }
  registered_ = true;
  told_draining_ = false;
  instance_ = reply.instance;
  lease_us_ = std::max<TimeUs>(reply.lease_us, 3);
  next_us_ = spacing_end_us_ = now;  // the first report makes the instance placeable
}

void Membership::OnReported(uint64_t serial, const ReportReply& reply, TimeUs now) {
  if (!calling_ || serial != serial_) return;
  calling_ = false;
  last_call_ = reply.status;
  last_report_failed_ = !reply.status.ok();
  spacing_end_us_ = now + config_.report_spacing_us +
                    static_cast<TimeUs>(listed_) * config_.report_spacing_per_request_us;
  if (reply.status.ok()) {
    ended_.erase(ended_.begin(), ended_.begin() + std::min(ended_in_flight_, ended_.size()));
    told_draining_ = draining_in_flight_;
  } else if (reply.status.code() == absl::StatusCode::kNotFound) {
    registered_ = false;
    next_us_ = now;
  } else {
    spacing_end_us_ = now + std::min(config_.register_retry_us, lease_us_ / 6);
    dirty_ = true;
  }
  ended_in_flight_ = 0;
}

absl::Status Membership::CheckEpoch(Epoch epoch) const {
  const uint64_t last = instance_.value + kEpochsMax;
  if (epoch.value <= last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch: ", epoch.value, " exceeds ", last,
                   ", the last that this worker's orchestrator can have issued"));
}

void Membership::OnUnregistered() {
  calling_ = false;
  registered_ = false;
}

void Membership::Ended(EndedRequest ended) {
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

std::optional<MembershipEffect> Membership::Register() {
  calling_ = true;
  return CallRegister{RegisterRequest{config_.identity}, config_.rpc_timeout_us};
}

std::optional<MembershipEffect> Membership::Report(WorkerLoad load, std::vector<HeldRequest> held,
                                                   TimeUs now) {
  calling_ = true;
  dirty_ = false;
  next_us_ = now + lease_us_ / 3;
  ended_in_flight_ = ended_.size();
  listed_ = held.size() + ended_.size();
  load.draining = draining_in_flight_ = draining();
  return CallReport{ReportRequest{.instance = instance_,
                                  .incarnation = config_.identity.incarnation,
                                  .serial = ++serial_,
                                  .load = std::move(load),
                                  .held = std::move(held),
                                  .ended = {ended_.begin(), ended_.end()}},
                    config_.rpc_timeout_us};
}

std::optional<MembershipEffect> Membership::Leave() {
  if (registered_) {
    calling_ = true;
    return CallUnregister{{instance_, config_.identity.incarnation}, config_.rpc_timeout_us};
  }
  left_ = true;
  return Drained{};
}

TimeUs Membership::NextDeadline() const {
  if (calling_ || left_) return kNever;
  if (!registered_) return next_us_;
  return dirty_ ? spacing_end_us_ : std::max(next_us_, spacing_end_us_);
}

}  // namespace skein::scheduler
