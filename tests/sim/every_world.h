// The tests that every kind of world must pass with every seed (every_world.cc). The test of a kind
// instantiates them with its slices of seeds, which Bazel shards.
#pragma once

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {

// The seeds [first, first + seeds) of the kind that `make` makes.
struct Slice {
  MakeWorld make = nullptr;
  uint64_t faultless_every = 0;  // the seeds that this divides have no faults
  uint64_t number = 0;
  uint64_t seeds = 0;

  uint64_t first() const { return seed_flags.first_seed + number * seeds; }
};

inline std::vector<Slice> SlicesOf(MakeWorld make, uint64_t faultless_every, uint64_t slices,
                                   uint64_t seeds) {
  std::vector<Slice> all;
  for (uint64_t i = 0; i < slices; ++i) all.push_back({make, faultless_every, i, seeds});
  return all;
}
inline void PrintTo(const Slice& slice, std::ostream* out) { *out << "slice " << slice.number; }

class EveryWorldTest : public ::testing::TestWithParam<Slice> {
 protected:
  // One of the slice, without faults.
  Scenario Faultless(uint64_t index = 0) const {
    const Slice& slice = GetParam();
    const uint64_t first = seed_flags.first_seed / slice.faultless_every;
    const Scenario scenario =
        slice.make(slice.faultless_every * (first + slice.number * slice.seeds + index + 1));
    EXPECT_TRUE(scenario.faultless);
    return scenario;
  }
};

}  // namespace skein::sim
