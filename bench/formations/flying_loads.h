// The loads and the setting of the policy of Flying Serving's tables.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/formations/tables.h"
#include "scheduler/simulator/formations/aggregated_run.h"
#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::bench {

const scheduler::StepProfile& Llama70b();

// The setting of all tables but the policy's; of the orchestrator's defaults, too, are 1 and 10 s.
scheduler::AggregatedOptions FlyingOptions();

scheduler::PhasedLoad BurstLoad(uint64_t seed);
scheduler::PhasedLoad QuietLoad(uint64_t seed);
// Three to five requests a second, a tenth of them urgent.
scheduler::PhasedLoad PriorityLoad(uint64_t seed);

// A cell with the mean and, in brackets, the worst value but a tenth of them. REQUIRES: not empty.
void PrintMean(std::vector<double> values, bool low_is_worse);

}  // namespace skein::bench
