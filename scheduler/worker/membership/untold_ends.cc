#include "scheduler/worker/membership/untold_ends.h"

#include <algorithm>
#include <utility>

namespace skein::scheduler {

void UntoldEnds::Add(EndedRequest ended, TimeUs alive_until_us) {
  if (ended.engine_failed) evidence_until_us_ = std::max(evidence_until_us_, alive_until_us);
  ended_.push_back(std::move(ended));
  if (ended_.size() <= kMax) return;
  ended_.pop_front();
  if (unanswered_ > 0) --unanswered_;
}

std::vector<EndedRequest> UntoldEnds::Send() {
  unanswered_ = ended_.size();
  return {ended_.begin(), ended_.end()};
}

void UntoldEnds::Answered() {
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(unanswered_));
  unanswered_ = 0;
}

void UntoldEnds::Unanswered() { unanswered_ = 0; }

bool UntoldEnds::HasEvidence(TimeUs now) const {
  if (now >= evidence_until_us_) return false;
  return std::any_of(ended_.begin(), ended_.end(),
                     [](const EndedRequest& one) { return one.engine_failed; });
}

absl::Status UntoldEnds::CheckInvariants() const {
  if (ended_.size() > kMax) return absl::InternalError("UntoldEnds: too many are remembered");
  if (unanswered_ <= ended_.size()) return absl::OkStatus();
  return absl::InternalError("UntoldEnds: more ends await an answer than there are");
}

}  // namespace skein::scheduler
