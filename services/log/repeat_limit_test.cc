#include "services/log/repeat_limit.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(RepeatLimit, AFailureThatLastsIsToldOnceAndEveryHalfMinute) {
  RepeatLimit limit;
  int told = 0;
  for (int64_t now = 5 * kSecond; now < 100 * kSecond; now += kSecond / 2) {
    told += limit.Admit("orchestrator a:1", now) ? 1 : 0;
  }
  EXPECT_EQ(told, 4);
  EXPECT_TRUE(limit.Admit("orchestrator b:1", 100 * kSecond)) << "another one";
}

TEST(RepeatLimit, AfterItsEndTheNextFailureIsToldAtOnce) {
  RepeatLimit limit;
  EXPECT_TRUE(limit.Admit("a", kSecond));
  limit.Over("a");
  limit.Over("unknown");
  EXPECT_TRUE(limit.Admit("a", kSecond + 1));
  EXPECT_FALSE(limit.Admit("a", kSecond + 2));
  limit.Clear();
  EXPECT_TRUE(limit.Admit("a", kSecond + 3));
}

TEST(RepeatLimit, WhatIsRememberedIsBounded) {
  RepeatLimit limit;
  for (size_t i = 0; i < RepeatLimit::kKindsMax; ++i) {
    EXPECT_TRUE(limit.Admit(std::to_string(i), kSecond));
  }
  EXPECT_TRUE(limit.Admit("more", kSecond));
  EXPECT_TRUE(limit.Admit("more", kSecond)) << "rather too many lines than none";
  EXPECT_FALSE(limit.Admit("0", kSecond));
  const int64_t later = kSecond + 2 * RepeatLimit::kSpacingUs;
  EXPECT_TRUE(limit.Admit("more", later));
  EXPECT_FALSE(limit.Admit("more", later)) << "the others were forgotten";
}

TEST(RepeatLimit, PeersThatNeverComeBackAreForgotten) {
  RepeatLimit limit;
  size_t most = 0;
  for (int i = 0; i < 500; ++i) {
    const int64_t now = (1 + i) * kSecond;
    EXPECT_TRUE(limit.Admit("worker 127.0.0.1:" + std::to_string(i), now));
    most = std::max(most, limit.size());
  }
  EXPECT_LE(most, static_cast<size_t>(3 * RepeatLimit::kSpacingUs / kSecond));
}

}  // namespace
}  // namespace skein::services
