// CPU time of other processes, from /proc.
#pragma once

#include <cstdint>

namespace skein::bench {

// User and system seconds that all threads of `pid` have used (in hundredths); 0 if it is gone.
double CpuSeconds(int64_t pid);

}  // namespace skein::bench
