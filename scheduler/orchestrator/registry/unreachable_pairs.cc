#include "scheduler/orchestrator/registry/unreachable_pairs.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void UnreachablePairs::Bar(const Pair& pair, Entry* entry, bool barred) {
  if (entry->barred == barred) return;
  entry->barred = barred;
  barred_count_ += barred ? 1 : -1;
  if (barred) {
    barred_[pair.first].insert(pair.second);
    return;
  }
  const auto of_first = barred_.find(pair.first);
  of_first->second.erase(pair.second);
  if (of_first->second.empty()) barred_.erase(of_first);
}

void UnreachablePairs::Erase(std::map<Pair, Entry>::iterator it) {
  Bar(it->first, &it->second, false);
  timers_.Remove(it->first);
  pairs_.erase(it);
}

void UnreachablePairs::Failed(InstanceId first, InstanceId second, TimeUs now) {
  const Pair pair{first, second};
  const auto known = pairs_.find(pair);
  if (known != pairs_.end() && known->second.barred) return;
  if (known == pairs_.end() && pairs_.size() >= kPairsMax) {
    if (const auto due = timers_.TakeDue(kNever)) Erase(pairs_.find(*due));
  }
  Entry& entry = pairs_[pair];
  ++failures_;
  Bar(pair, &entry, true);
  timers_.Set(pair, now + entry.backoff.Failed());
}

void UnreachablePairs::Worked(InstanceId first, InstanceId second) {
  const auto known = pairs_.find({first, second});
  if (known != pairs_.end()) Erase(known);
}

void UnreachablePairs::Forget(InstanceId instance) {
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const auto next = std::next(it);
    if (it->first.first == instance || it->first.second == instance) Erase(it);
    it = next;
  }
}

bool UnreachablePairs::RunTimers(TimeUs now) {
  bool freed = false;
  while (const auto due = timers_.TakeDue(now)) {
    const auto it = pairs_.find(*due);
    if (it->second.barred) {
      Bar(it->first, &it->second, false);
      timers_.Set(*due, now + kKeptUs);
      freed = true;
    } else {
      Erase(it);
    }
  }
  return freed;
}

const std::set<InstanceId>& UnreachablePairs::BarredFor(InstanceId first) const {
  static const auto* const none = new std::set<InstanceId>;
  const auto it = barred_.find(first);
  return it == barred_.end() ? *none : it->second;
}

absl::Status UnreachablePairs::CheckInvariants() const {
  int64_t barred = 0;
  for (const auto& [pair, entry] : pairs_) {
    const auto of_first = barred_.find(pair.first);
    const bool listed = of_first != barred_.end() && of_first->second.count(pair.second) > 0;
    barred += entry.barred ? 1 : 0;
    if (listed == entry.barred && timers_.Of(pair) != kNever) continue;
    return absl::InternalError(absl::StrCat("UnreachablePairs: instances ", pair.first.value,
                                            " and ", pair.second.value,
                                            " are barred in one table but not in the other, or "
                                            "for ever"));
  }
  int64_t listed = 0;
  for (const auto& [prefill, decodes] : barred_) listed += static_cast<int64_t>(decodes.size());
  if (barred == listed && barred == barred_count_ && pairs_.size() == timers_.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError("UnreachablePairs: an unknown pair is barred or timed");
}

}  // namespace skein::scheduler
