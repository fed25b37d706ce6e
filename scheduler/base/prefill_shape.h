// PrefillShape: how a request's prompt is to be computed, where its submitter asks for it: by so
// many prefill instances together, in one chunk. For measurements; clients cannot ask.
#pragma once

#include <cstdint>

namespace skein::scheduler {

struct PrefillShape {
  uint32_t instances = 0;  // 0: the policy decides. A power of two
  uint32_t tp = 1;         // as PlanChunk has it

  bool asked() const { return instances > 0; }
  bool operator==(const PrefillShape&) const = default;
};

// The widest that can be asked for.
inline constexpr uint32_t kPrefillShapeMax = 1024;

}  // namespace skein::scheduler
