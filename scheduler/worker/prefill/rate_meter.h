// RateMeter: tokens per second over recent steps (an exponential mean with weight 1/8).
#pragma once

#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class RateMeter {
 public:
  void Add(int64_t tokens, TimeUs took_us) {
    if (took_us <= 0 || tokens <= 0) return;
    const double rate = static_cast<double>(tokens) * kSecondUs / static_cast<double>(took_us);
    rate_ = rate_ == 0 ? rate : rate_ + (rate - rate_) / 8;
  }
  double PerSecond() const { return rate_; }  // 0: nothing measured yet

 private:
  double rate_ = 0;
};

}  // namespace skein::scheduler
