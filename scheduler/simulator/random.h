// A seeded generator and the distributions that the simulator uses. Unlike std::*_distribution,
// they give the same numbers with every standard library. The generator is SplitMix64 (Steele, Lea,
// Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#pragma once

#include <cmath>
#include <cstdint>

namespace skein::scheduler {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

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
