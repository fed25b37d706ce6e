#include "scheduler/orchestrator/registry/unreachable_pairs.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr InstanceId kPrefill{1}, kOther{2}, kDecode{11}, kSpare{12};

class UnreachablePairsTest : public ::testing::Test {
 protected:
  bool IsBarred(InstanceId prefill, InstanceId decode) const {
    return pairs_.BarredFor(prefill).count(decode) > 0;
  }
  // How long it is barred by a failure now, in seconds.
  int64_t SecondsBarred() {
    pairs_.Failed(kPrefill, kDecode, now_);
    const TimeUs from = now_;
    while (IsBarred(kPrefill, kDecode)) {
      now_ = pairs_.NextDue();
      EXPECT_TRUE(pairs_.RunTimers(now_));
    }
    return (now_ - from) / kSecondUs;
  }
  void TearDown() override {
    EXPECT_TRUE(pairs_.CheckInvariants().ok()) << pairs_.CheckInvariants();
  }

  UnreachablePairs pairs_;
  TimeUs now_ = kSecondUs;
};

TEST_F(UnreachablePairsTest, OneThatFailsIsBarredForLongerAndLonger) {
  EXPECT_EQ(pairs_.NextDue(), kNever);
  EXPECT_FALSE(pairs_.any());
  for (const int64_t seconds : {5, 10, 20, 40, 60, 60}) EXPECT_EQ(SecondsBarred(), seconds);
  EXPECT_EQ(pairs_.failures(), 6u);
  EXPECT_FALSE(pairs_.any());
}

TEST_F(UnreachablePairsTest, OnlyThatPairIsBarred) {
  pairs_.Failed(kPrefill, kDecode, now_);
  EXPECT_TRUE(IsBarred(kPrefill, kDecode));
  EXPECT_FALSE(IsBarred(kPrefill, kSpare));
  EXPECT_FALSE(IsBarred(kOther, kDecode));
  EXPECT_EQ(pairs_.barred(), 1);
}

TEST_F(UnreachablePairsTest, HandoffsThatWereUnderWayTogetherCountOnce) {
  for (int i = 0; i < 100; ++i) pairs_.Failed(kPrefill, kDecode, now_ + i);
  EXPECT_EQ(pairs_.failures(), 1u);
  EXPECT_EQ(pairs_.NextDue(), now_ + 5 * kSecondUs);
}

TEST_F(UnreachablePairsTest, AHandoffThatWorksForgetsIt) {
  SecondsBarred();
  SecondsBarred();
  pairs_.Worked(kPrefill, kDecode);
  EXPECT_EQ(pairs_.NextDue(), kNever);
  EXPECT_EQ(SecondsBarred(), 5);
  pairs_.Failed(kPrefill, kDecode, now_);
  pairs_.Worked(kPrefill, kDecode);
  EXPECT_FALSE(pairs_.any());
  pairs_.Worked(kOther, kSpare);  // it never failed
}

TEST_F(UnreachablePairsTest, AnInstanceThatLeavesIsForgotten) {
  pairs_.Failed(kPrefill, kDecode, now_);
  pairs_.Failed(kPrefill, kSpare, now_);
  pairs_.Failed(kOther, kDecode, now_);
  pairs_.Forget(kDecode);
  EXPECT_FALSE(IsBarred(kPrefill, kDecode));
  EXPECT_FALSE(IsBarred(kOther, kDecode));
  EXPECT_TRUE(IsBarred(kPrefill, kSpare));
  pairs_.Forget(kPrefill);
  EXPECT_FALSE(pairs_.any());
}

TEST_F(UnreachablePairsTest, ALongPeaceForgetsIt) {
  SecondsBarred();
  now_ = pairs_.NextDue();
  EXPECT_FALSE(pairs_.RunTimers(now_));
  EXPECT_EQ(pairs_.NextDue(), kNever);
  EXPECT_EQ(SecondsBarred(), 5);
}

TEST_F(UnreachablePairsTest, TheTableIsBounded) {
  const auto most = static_cast<uint64_t>(UnreachablePairs::kPairsMax);
  for (uint64_t i = 0; i < 2 * most; ++i) {
    pairs_.Failed({i}, kDecode, now_ + static_cast<TimeUs>(i));
  }
  EXPECT_EQ(pairs_.barred(), static_cast<int64_t>(most));
  EXPECT_FALSE(IsBarred({0}, kDecode)) << "it would have been freed first";
  EXPECT_TRUE(IsBarred({2 * most - 1}, kDecode));
}

}  // namespace
}  // namespace skein::scheduler
