#include "bench/formations/flying_loads.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace skein::bench {

using scheduler::AggregatedOptions;
using scheduler::PhasedLoad;

const scheduler::StepProfile& Llama70b() { return Profile("llama3-70b-h200-bf16"); }

AggregatedOptions FlyingOptions() {
  AggregatedOptions options;
  options.driver.policy = {
      .bind_sequences = 1, .release_sequences = 12, .release_waiting_tokens = 5000};
  return options;
}

PhasedLoad BurstLoad(uint64_t seed) {
  PhasedLoad load;
  load.quiet_s = 120;
  load.prompt_min = 500;
  load.prompt_max = 5000;
  load.output_min = 20;
  load.output_max = 180;
  load.seed = seed;
  return load;
}

PhasedLoad QuietLoad(uint64_t seed) {
  PhasedLoad load = BurstLoad(seed);
  load.burst_s = 0;
  load.requests = 1500;
  return load;
}

PhasedLoad PriorityLoad(uint64_t seed) {
  PhasedLoad load = QuietLoad(seed);
  load.quiet_rate_min = 3;
  load.prompt_min = 100;
  load.prompt_max = 1500;
  load.output_min = 200;
  load.output_max = 1000;
  load.priority_share = 0.1;
  return load;
}

void PrintMean(std::vector<double> values, bool low_is_worse) {
  double sum = 0;
  for (const double value : values) sum += value;
  std::sort(values.begin(), values.end());
  const size_t tenth = values.size() / 10;
  std::printf(" %.3f (%.2f) |", sum / static_cast<double>(values.size()),
              low_is_worse ? values[tenth] : values[values.size() - 1 - tenth]);
}

}  // namespace skein::bench
