// A seeded generator and the distributions that the simulator uses. Unlike std::*_distribution,
// they give the same numbers with every standard library. The generator is SplitMix64
// (scheduler/vocabulary/mix64.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix64(state_ += kMix64Step); }

  // In (0, 1], so its logarithm is finite.
  double Uniform() { return (static_cast<double>(Next() >> 11) + 1) * 0x1p-53; }

  double Exponential(double mean) { return -mean * std::log(Uniform()); }

  // Standard normal (Box and Muller; one of the pair).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * Uniform());
  }

  // In [0, bound). REQUIRES bound > 0; the bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace skein::scheduler
