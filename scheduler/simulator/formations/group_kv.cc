#include "scheduler/simulator/formations/group_kv.h"

#include <numeric>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

using orchestrator::Subset;

GroupKv::GroupKv(const StepProfile& profile, int32_t members, int64_t copies,
                 const std::vector<GroupRequest>* requests)
    : requests_(requests),
      token_bytes_(profile.KvBytesPerToken()),
      capacity_bytes_(static_cast<double>(profile.KvTokens(members, copies)) * token_bytes_ /
                      members),
      held_bytes_(static_cast<size_t>(members), 0) {}

double GroupKv::BytesOf(size_t request) const {
  const GroupRequest& of = (*requests_)[request];
  return static_cast<double>(of.prompt_tokens + of.output_tokens) * token_bytes_;
}

bool GroupKv::Fits(size_t request, int32_t instances) const {
  return BytesOf(request) <= capacity_bytes_ * instances;
}

bool GroupKv::Reserve(const Subset& subset, size_t request) {
  SKEIN_CHECK(!Holds(request));
  const double bytes = BytesOf(request) / subset.size;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    if (held_bytes_[static_cast<size_t>(i)] + bytes > capacity_bytes_) return false;
  }
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    held_bytes_[static_cast<size_t>(i)] += bytes;
  }
  holds_[request] = subset;
  return true;
}

void GroupKv::Free(size_t request) {
  const auto held = holds_.extract(request);
  if (held.empty()) return;
  const Subset& subset = held.mapped();
  const double bytes = BytesOf(request) / subset.size;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    held_bytes_[static_cast<size_t>(i)] -= bytes;
  }
}

double GroupKv::held_share() const {
  const double bytes = std::accumulate(held_bytes_.begin(), held_bytes_.end(), 0.0);
  return bytes / (capacity_bytes_ * static_cast<double>(held_bytes_.size()));
}

}  // namespace skein::scheduler
