#include "bench/gateway/load.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace skein::bench {

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Samples::Fail(std::string why) {
  if (errors++ == 0) first_error = std::move(why);
}

void Samples::Add(const Samples& other) {
  streams.insert(streams.end(), other.streams.begin(), other.streams.end());
  in_time += other.in_time;
  seconds += other.seconds;
  if (errors == 0) first_error = other.first_error;
  errors += other.errors;
}

int64_t Quantile(std::vector<int64_t> values, double q) {
  if (values.empty()) return 0;
  const auto at =
      std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(at), values.end());
  return values[at];
}

}  // namespace skein::bench
