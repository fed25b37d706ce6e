// FreenessOrder: the candidates of PickDecode (freeness.h), kept in the order of their freeness, so
// that a pick does not look at all of them. One thread.
//
// Cost. A change of a candidate: the logarithm of their number. A pick: the candidates that are
// freer than the one it takes but have no room, are slow, or are not allowed; if none has room for
// the blocks, it looks at one.
//
// Invariants (CheckInvariants): each candidate is in each index once, by its values of now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/looks.h"
#include "scheduler/placement/freeness.h"

namespace skein::scheduler {

class FreenessOrder {
 public:
  void Set(const DecodeCandidate& candidate);  // it is new, or changed
  void Remove(InstanceId instance);            // ignored if unknown
  size_t size() const { return candidates_.size(); }
  const DecodeCandidate* Find(InstanceId instance) const;  // null: unknown

  // What PickDecode would pick of those candidates for which allows(InstanceId) holds. The fastest
  // candidate, by which others count as slow, is that of all.
  template <class Allows>
  std::optional<InstanceId> Pick(int64_t blocks, Allows allows) const {
    if (by_room_.empty() || by_room_.rbegin()->first < blocks) return std::nullopt;
    const double slow_s = by_step_.empty() ? 0 : kSlowStepFactor * by_step_.begin()->first;
    std::optional<InstanceId> slow;  // the freest of them
    for (const auto& [place, values] : order_) {
      SKEIN_LOOKED(1);
      if (values.room < blocks || !allows(place.second)) continue;
      if (values.step_s <= slow_s) return place.second;
      if (!slow.has_value()) slow = place.second;
    }
    return slow;
  }

  absl::Status CheckInvariants() const;

 private:
  using Place = std::pair<double, InstanceId>;  // the negative freeness: the freest comes first
  struct Values {
    int64_t room = 0;
    double step_s = 0;
  };
  static Place PlaceOf(const DecodeCandidate& candidate) {
    return {-Freeness(candidate), candidate.instance};
  }

  absl::btree_map<InstanceId, DecodeCandidate> candidates_;
  absl::btree_map<Place, Values> order_;
  absl::btree_set<std::pair<int64_t, InstanceId>> by_room_;  // AvailableBlocks
  absl::btree_set<std::pair<double, InstanceId>> by_step_;   // of those with a step time
};

}  // namespace skein::scheduler
