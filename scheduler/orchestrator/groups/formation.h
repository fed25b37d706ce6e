// Words about formations that FormationSwitch and the policy share: which members of a group may
// be bound together or share their weights, and how people call it.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/shared_mode.h"

namespace skein::scheduler::orchestrator {

// Members [first, first + size) of a group, in the order of its GroupOrder.
struct Subset {
  int32_t first = 0;
  int32_t size = 0;
  auto operator<=>(const Subset&) const = default;

  int32_t end() const { return first + size; }
  bool Overlaps(const Subset& other) const { return first < other.end() && other.first < end(); }
};

// As many instances as can be bound together (the engine's kGroupRanksMax).
inline constexpr int32_t kBoundMax = 8;

// Whether the subset has communicators in a group of `members`: its size is a power of two, from 2
// to kBoundMax, and `first` is a multiple of it.
inline bool IsBindable(const Subset& subset, size_t members) {
  return subset.size >= 2 && subset.size <= kBoundMax &&
         std::has_single_bit(static_cast<uint32_t>(subset.size)) && subset.first >= 0 &&
         subset.first % subset.size == 0 &&
         static_cast<size_t>(subset.first) + static_cast<size_t>(subset.size) <= members;
}

// REQUIRES: the subset is within the order.
inline std::vector<InstanceId> MembersOf(const GroupOrder& order, const Subset& subset) {
  std::vector<InstanceId> members;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    members.push_back(order.members[static_cast<size_t>(i)].instance);
  }
  return members;
}

// "independent" for one instance, else "bound(size)"; of shared weights "shared(was)" or
// "shared(cas)".
inline std::string FormationName(int32_t size, std::optional<SharedMode> shared = {}) {
  if (size <= 1) return "independent";
  return shared ? absl::StrCat("shared(", ToString(*shared), ")")
                : absl::StrCat("bound(", size, ")");
}

}  // namespace skein::scheduler::orchestrator
