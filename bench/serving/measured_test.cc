#include "bench/serving/measured.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::bench {
namespace {

using ::testing::ElementsAre;

constexpr Window kWindow = {1000, 2000};

Samples Of(std::vector<StreamTimes> streams) {
  Samples samples;
  samples.streams = std::move(streams);
  return samples;
}

TEST(Measured, AnAnswerWithinCountsWhole) {
  const Measured one =
      Within(kWindow, Of({{.ttft_us = 100, .total_us = 500, .start_us = 1100}}), 9);
  EXPECT_DOUBLE_EQ(one.tokens, 9);
  EXPECT_THAT(one.ttft_us, ElementsAre(100));
  EXPECT_THAT(one.tpot_us, ElementsAre(50));
}

TEST(Measured, AnAnswerOfTheWarmUpCountsByWhatComesAfterIt) {
  const Measured one = Within(kWindow, Of({{.ttft_us = 100, .total_us = 900, .start_us = 500}}), 9);
  EXPECT_DOUBLE_EQ(one.tokens, 4);  // its first token came at 600, its end at 1400
  EXPECT_THAT(one.ttft_us, ElementsAre());
  EXPECT_THAT(one.tpot_us, ElementsAre(100));
}

TEST(Measured, AnAnswerThatEndsLaterCountsUntilThen) {
  const Measured one =
      Within(kWindow, Of({{.ttft_us = 100, .total_us = 500, .start_us = 1700}}), 9);
  EXPECT_DOUBLE_EQ(one.tokens, 1 + 4);  // its first token came at 1800, its end at 2200
  EXPECT_THAT(one.ttft_us, ElementsAre(100));
  EXPECT_THAT(one.tpot_us, ElementsAre());
}

TEST(Measured, WhatIsBeforeOrAfterDoesNotCount) {
  const Measured none = Within(kWindow,
                               Of({{.ttft_us = 100, .total_us = 400, .start_us = 500},
                                   {.ttft_us = 600, .total_us = 900, .start_us = 1500}}),
                               9);
  EXPECT_DOUBLE_EQ(none.tokens, 0);
  EXPECT_THAT(none.ttft_us, ElementsAre());
  EXPECT_THAT(none.tpot_us, ElementsAre());
}

TEST(Measured, AnAnswerLongerThanTheWindowCountsByItsShare) {
  const Measured one = Within(kWindow, Of({{.ttft_us = 0, .total_us = 4000, .start_us = 0}}), 9);
  EXPECT_DOUBLE_EQ(one.tokens, 2);
}

TEST(Measured, AnAnswerOfOneTokenHasOne) {
  const Measured one =
      Within(kWindow, Of({{.ttft_us = 100, .total_us = 100, .start_us = 1100}}), 1);
  EXPECT_DOUBLE_EQ(one.tokens, 1);
}

TEST(PromptOf, IsThatOfItsSeedAndIndex) {
  const std::vector<int> prompt = PromptOf(7, 3, 20, 100);
  EXPECT_EQ(prompt, PromptOf(7, 3, 20, 100));
  EXPECT_NE(prompt, PromptOf(7, 4, 20, 100));
  EXPECT_NE(prompt, PromptOf(8, 3, 20, 100));
  ASSERT_EQ(prompt.size(), 20u);
  for (const int id : prompt) EXPECT_TRUE(3 <= id && id <= 91) << id;
}

}  // namespace
}  // namespace skein::bench
