#include "engine/model/ring/ring_progress.h"

#include "engine/model/ring/ring_groups.h"

namespace skein::engine {
namespace {

absl::Status AsStepStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInvalidArgument:
      return status;
    case absl::StatusCode::kInternal:  // calls or tags that differ
      return absl::InvalidArgumentError(
          "ring: the ranks were given other steps or models, or differ in --reproducible: " +
          std::string(status.message()));
    default:
      return absl::UnavailableError("collective of a ring step: " + status.ToString());
  }
}

}  // namespace

void RingProgress::Reach(Milestone milestone, int64_t value) {
  const std::lock_guard lock(mutex_);
  reached_[static_cast<size_t>(milestone)] = value;
  changed_.notify_all();
}

bool RingProgress::Await(Milestone milestone, int64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return !status_.ok() || reached_[static_cast<size_t>(milestone)] >= value; });
  return status_.ok();
}

void RingProgress::Fail(const absl::Status& status) {
  absl::Status reason;
  {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = AsStepStatus(status);
    reason = status_;
    changed_.notify_all();
  }
  for (Communicator* const group : GroupsOf(step_)) group->Abort(reason);
}

absl::Status RingProgress::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace skein::engine
