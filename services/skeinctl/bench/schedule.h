// When the requests of a load are sent. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::services::bench {

enum class Arrivals { kPoisson, kConstant };

// An open loop: when `count` requests are sent, ascending, the first at 0. Poisson gaps come from
// the seed; at another rate the same seed gives the same gaps, scaled. REQUIRES requests_per_s > 0.
std::vector<double> ArrivalTimes(Arrivals arrivals, double requests_per_s, int64_t count,
                                 uint64_t seed);

// A recorded schedule, `speedup` times as fast, the first at 0. REQUIRES ascending times, speedup >
// 0.
std::vector<double> RecordedTimes(std::vector<double> recorded_s, double speedup);

}  // namespace skein::services::bench
