// Flying Serving's figures 8, 9 and 10 and its table 1, simulated, and how the policy of formations
// does over many seeds.
#pragma once

namespace skein::bench {

void PrintFlyingTables();
void PrintPolicyTables();

}  // namespace skein::bench
