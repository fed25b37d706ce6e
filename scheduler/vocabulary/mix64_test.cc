#include "scheduler/vocabulary/mix64.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

// The first numbers of the paper's generator, from seed 1234567.
TEST(Mix64Test, GivesTheNumbersOfSplitMix64) {
  uint64_t state = 1234567;
  for (const uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                  4593380528125082431u, 16408922859458223821u}) {
    EXPECT_EQ(Mix64(state += kMix64Step), expected);
  }
  EXPECT_EQ(Mix64(0), 0u);
}

}  // namespace
}  // namespace skein
