// Flying Serving's figures 8, 9 and 10 and its table 1, simulated, and how the policy of formations
// does over many seeds.
#pragma once

#include <cstdint>

namespace skein::bench {

void PrintFlyingTables();
void PrintPolicyTables();
// One row a seed, those with the longest TTFT in bursts first: its ratios to static DP, and when
// the policy (auto) bound and released.
void PrintSeeds(uint64_t first, uint64_t last);

}  // namespace skein::bench
