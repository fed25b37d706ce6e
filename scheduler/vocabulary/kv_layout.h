// KvLayout: how the heads of a sequence's KV are split over the ranks of its group.
#pragma once

#include <cstdint>

namespace skein {

// The KV was written by a group of `tp` ranks; 1: by one instance alone. It travels with the
// sequence, and every message that names blocks carries it.
struct KvLayout {
  int32_t tp = 1;
  bool operator==(const KvLayout&) const = default;
};

}  // namespace skein
