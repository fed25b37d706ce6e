#include "scheduler/simulator/metrics.h"

#include <algorithm>
#include <cmath>

namespace skein::scheduler {
namespace {

constexpr double kLeastS = 1e-6;  // smaller values share the first bin
constexpr double kWidth = 1.01;

size_t BinOf(double seconds) {
  static const double scale = 1 / std::log(kWidth);
  return seconds <= kLeastS ? 0 : static_cast<size_t>(std::log(seconds / kLeastS) * scale) + 1;
}

double UpperEdge(size_t bin) { return kLeastS * std::pow(kWidth, static_cast<double>(bin)); }

size_t Rank(double fraction, size_t count) {
  const double rank = std::ceil(fraction * static_cast<double>(count));
  return std::min(count, std::max<size_t>(1, static_cast<size_t>(rank)));
}

}  // namespace

double Percentile(std::vector<double>* values, double fraction) {
  if (values->empty()) return 0;
  const auto nth = values->begin() + static_cast<int64_t>(Rank(fraction, values->size())) - 1;
  std::nth_element(values->begin(), nth, values->end());
  return *nth;
}

double PercentileOfSorted(const std::vector<double>& sorted, double fraction) {
  return sorted.empty() ? 0 : sorted[Rank(fraction, sorted.size()) - 1];
}

void TimeHistogram::Add(double seconds, int64_t count) {
  const size_t bin = BinOf(seconds);
  if (bin >= bins_.size()) bins_.resize(bin + 1, 0);
  bins_[bin] += count;
  count_ += count;
}

void TimeHistogram::AddRising(double first_s, double growth_s, int64_t steps, int64_t count) {
  while (steps > 0) {
    // The number of values that surely share the first one's bin.
    const double room_s = UpperEdge(BinOf(first_s)) - first_s;
    int64_t same = steps;
    if (growth_s * static_cast<double>(steps) > room_s) {
      same = std::clamp<int64_t>(static_cast<int64_t>(room_s / growth_s), 1, steps);
    }
    Add(first_s, same * count);
    first_s += growth_s * static_cast<double>(same);
    steps -= same;
  }
}

double TimeHistogram::Percentile(double fraction) const {
  if (count_ == 0) return 0;
  auto left = static_cast<int64_t>(Rank(fraction, static_cast<size_t>(count_)));
  size_t bin = 0;
  while ((left -= bins_[bin]) > 0) ++bin;
  return UpperEdge(bin) / std::sqrt(kWidth);
}

}  // namespace skein::scheduler
