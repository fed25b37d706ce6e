#include "services/skeinctl/bench/schedule.h"

#include "scheduler/simulator/random.h"

namespace skein::services::bench {

std::vector<double> ArrivalTimes(Arrivals arrivals, double requests_per_s, int64_t count,
                                 uint64_t seed) {
  scheduler::Random random(seed);
  std::vector<double> times;
  double now_s = 0;
  for (int64_t i = 0; i < count; ++i) {
    times.push_back(now_s);
    // A multiple of the mean, so that constant gaps do not accumulate rounding errors.
    now_s = arrivals == Arrivals::kConstant ? static_cast<double>(i + 1) / requests_per_s
                                            : now_s + random.Exponential(1) / requests_per_s;
  }
  return times;
}

std::vector<double> RecordedTimes(std::vector<double> recorded_s, double speedup) {
  const double first_s = recorded_s.empty() ? 0 : recorded_s.front();
  for (double& time_s : recorded_s) time_s = (time_s - first_s) / speedup;
  return recorded_s;
}

}  // namespace skein::services::bench
