// Pauses between attempts that fail: each is twice as long as the one before, up to a limit.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class Backoff {
 public:
  // REQUIRES 0 < first_us <= longest_us, and longest_us below 2^46 us (two years).
  constexpr Backoff(TimeUs first_us, TimeUs longest_us)
      : first_us_(first_us), longest_us_(longest_us) {}

  // An attempt failed. The pause until the next one.
  constexpr TimeUs Failed() {
    const TimeUs pause = std::min(longest_us_, first_us_ << std::min(failures_, kMostDoublings));
    ++failures_;
    return pause;
  }
  constexpr void Succeeded() { failures_ = 0; }
  // In a row.
  constexpr int failures() const { return failures_; }

 private:
  static constexpr int kMostDoublings = 16;

  TimeUs first_us_;
  TimeUs longest_us_;
  int failures_ = 0;
};

}  // namespace skein::scheduler
