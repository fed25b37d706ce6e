// Percentiles of a run.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::scheduler {

// Nearest rank: the least value that is >= at least `fraction` of the values; 0 without values.
// Reorders `values`. REQUIRES 0 <= fraction <= 1.
double Percentile(std::vector<double>* values, double fraction);
// The same for ascending values, which stay unchanged.
double PercentileOfSorted(const std::vector<double>& sorted, double fraction);

// Counts positive times in bins of 1 % width, for runs with too many to keep.
class TimeHistogram {
 public:
  void Add(double seconds, int64_t count);
  // `steps` times of first_s, first_s + growth_s, ..., `count` of each. REQUIRES growth_s >= 0.
  void AddRising(double first_s, double growth_s, int64_t steps, int64_t count);

  // Within 0.5 %; 0 if empty.
  double Percentile(double fraction) const;
  int64_t count() const { return count_; }

 private:
  std::vector<int64_t> bins_;
  int64_t count_ = 0;
};

}  // namespace skein::scheduler
