// RateOrder: prefill instances in the order of their queue times, by the rates that they report, so
// that a pick does not look at all of them (queue_time.h has the estimate). One thread.
//
// Cost. A change: the logarithm of the number of candidates. A pick: kLooksMax candidates at most,
// and those that are not allowed on the way. Of candidates with the same queue time, such as the
// idle ones, it looks at the fastest only.
//
// Invariant (CheckInvariants): each candidate is in each index once, by its values of now.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/looks.h"
#include "scheduler/placement/queue_time.h"

namespace skein::scheduler {

class RateOrder {
 public:
  static constexpr size_t kLooksMax = 64;

  void Set(const PrefillCandidate& candidate);  // it is new, or changed
  void Remove(InstanceId instance);             // ignored if unknown
  size_t size() const { return candidates_.size(); }
  const PrefillCandidate* Find(InstanceId instance) const;  // null: unknown

  // The candidate that would finish the prompt first, of the kLooksMax with the shortest queues for
  // which allows(InstanceId) holds. Of equals the one with the shorter queue.
  template <class Allows>
  std::optional<InstanceId> Pick(int64_t prompt_tokens, Allows allows) const {
    if (order_.empty()) return std::nullopt;
    const auto tokens = static_cast<double>(prompt_tokens);
    const double least_s = tokens / by_rate_.rbegin()->first;  // at the fastest of all
    std::optional<InstanceId> best;
    double best_s = 0;
    size_t looks = 0;
    for (auto it = order_.begin(); it != order_.end() && looks < kLooksMax;) {
      SKEIN_LOOKED(1);
      const auto [queue_s, negative_rate, instance] = *it;
      if (best.has_value() && queue_s + least_s >= best_s) break;
      if (!allows(instance)) {
        ++it;
        continue;
      }
      ++looks;
      const double end_s = queue_s + tokens / -negative_rate;
      if (!best.has_value() || end_s < best_s) {
        best = instance;
        best_s = end_s;
      }
      it = order_.upper_bound(LastWith(queue_s));
    }
    return best;
  }

  // The same where a prompt waits for other tokens than all that are queued: for
  // before(InstanceId), which is at most those. Of the kLooksMax with the shortest queues.
  template <class Allows, class Before>
  std::optional<InstanceId> PickBefore(int64_t prompt_tokens, Allows allows, Before before) const {
    std::optional<InstanceId> best;
    double best_s = 0;
    size_t looks = 0;
    for (auto it = order_.begin(); it != order_.end() && looks < kLooksMax; ++it) {
      SKEIN_LOOKED(1);
      const auto [queue_s, negative_rate, instance] = *it;
      if (!allows(instance)) continue;
      ++looks;
      const auto tokens = static_cast<double>(before(instance));
      const double end_s = std::min(queue_s, tokens / -negative_rate) +
                           static_cast<double>(prompt_tokens) / -negative_rate;
      if (best.has_value() && end_s >= best_s) continue;
      best = instance;
      best_s = end_s;
    }
    return best;
  }

  // visit(PrefillCandidate) for those with the shortest queues, `count` at most.
  template <class Visit>
  void ForShortest(size_t count, Visit visit) const {
    for (auto it = order_.begin(); it != order_.end() && count > 0; ++it, --count) {
      visit(candidates_.at(std::get<InstanceId>(*it)));
    }
  }

  absl::Status CheckInvariants() const;

 private:
  using Place = std::tuple<double, double, InstanceId>;  // queue time, negative rate
  static Place PlaceOf(const PrefillCandidate& candidate) {
    return {QueueSeconds(candidate), -candidate.tokens_per_second, candidate.instance};
  }
  static Place LastWith(double queue_s) {
    constexpr uint64_t kLastId = std::numeric_limits<uint64_t>::max();
    return {queue_s, std::numeric_limits<double>::infinity(), InstanceId{kLastId}};
  }

  absl::btree_map<InstanceId, PrefillCandidate> candidates_;
  absl::btree_set<Place> order_;
  absl::btree_set<std::pair<double, InstanceId>> by_rate_;
};

}  // namespace skein::scheduler
