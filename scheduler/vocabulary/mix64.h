// Mix64: the finaliser of SplitMix64 (Steele, Lea and Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014). A bijection of 64 bits; 0 stays 0.
#pragma once

#include <cstdint>

namespace skein {

// SplitMix64 adds this to its state before each number.
inline constexpr uint64_t kMix64Step = 0x9e3779b97f4a7c15u;

constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace skein
