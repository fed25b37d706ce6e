// How the ranks of a bound group run a step.
#pragma once

#include <cstdint>

namespace skein::scheduler {

// sp * tp ranks run the step together. Own: each rank alone, a step of its own batch.
struct StepMode {
  int32_t sp = 0;
  int32_t tp = 0;
  bool own() const { return sp == 0; }
  bool operator==(const StepMode&) const = default;
};

}  // namespace skein::scheduler
