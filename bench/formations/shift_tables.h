// Shift Parallelism's figures 10, 11 and 13 and its table 5, simulated, and what a shift between
// two steps may cost.
#pragma once

namespace skein::bench {

void PrintShiftTables();

}  // namespace skein::bench
