#include "scheduler/vocabulary/decode_times.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

const DecodeTimes kTimes = {
    .step_s = 10, .sequence_s = 1, .kv_token_s = 0.5, .gains = {{2, 1.6}, {4, 2}}};

TEST(DecodeTimesTest, AloneIsTheSumOfItsParts) {
  EXPECT_DOUBLE_EQ(kTimes.Seconds(1, 1, 3, 4), 10 + 3 + 2);
}

TEST(DecodeTimesTest, TpIsFasterByItsGain) {
  EXPECT_DOUBLE_EQ(kTimes.Seconds(1, 4, 3, 4), 15.0 / 2);
  EXPECT_DOUBLE_EQ(kTimes.Seconds(1, 8, 3, 4), 15.0) << "nobody has measured 8";
}

TEST(DecodeTimesTest, SpSharesTheSequencesOutAndPads) {
  EXPECT_DOUBLE_EQ(kTimes.Seconds(2, 1, 3, 4), 10 + 2 + 1);
  EXPECT_DOUBLE_EQ(kTimes.Seconds(4, 1, 3, 4), 10 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(kTimes.Seconds(2, 2, 3, 4), 13 / 1.6);
}

}  // namespace
}  // namespace skein
