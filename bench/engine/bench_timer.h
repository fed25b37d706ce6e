// Timing for benches on a noisy machine: the things to be compared take turns within one run, and
// each reports its median. Work of one thread can be timed by the thread's CPU time, which other
// processes on its core do not lengthen (they still share caches and memory).
#pragma once

#include <time.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace skein::bench {

enum class Clock { kWall, kThreadCpu };

inline double SecondsNow(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Runs every body `repeats` times in turn, after one untimed round; the median seconds of each.
inline std::vector<double> MedianSecondsInTurn(const std::vector<std::function<void()>>& bodies,
                                               int repeats, Clock clock = Clock::kWall) {
  std::vector<std::vector<double>> seconds(bodies.size());
  for (const auto& body : bodies) body();
  for (int i = 0; i < repeats; ++i) {
    for (size_t b = 0; b < bodies.size(); ++b) {
      const double begin = SecondsNow(clock);
      bodies[b]();
      seconds[b].push_back(SecondsNow(clock) - begin);
    }
  }
  std::vector<double> medians;
  for (const auto& s : seconds) medians.push_back(Median(s));
  return medians;
}

}  // namespace skein::bench
