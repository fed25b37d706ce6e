#include "scheduler/worker/membership/untold_ends.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

class UntoldEndsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(ends_.CheckInvariants().ok()); }
  void Add(uint64_t serial, bool engine_failed = false, TimeUs alive_until_us = 0) {
    ends_.Add({.id = {7, serial}, .epoch = {1}, .engine_failed = engine_failed}, alive_until_us);
  }
  UntoldEnds ends_;
};

TEST_F(UntoldEndsTest, AreSentAgainUntilAMessageWithThemIsAnswered) {
  Add(1);
  EXPECT_EQ(ends_.Send().size(), 1u);
  Add(2);
  ends_.Unanswered();
  EXPECT_EQ(ends_.Send().size(), 2u);
  Add(3);
  ends_.Answered();
  const auto left = ends_.Send();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id.serial, 3u) << "it came after the message";
  ends_.Answered();
  EXPECT_TRUE(ends_.empty());
  ends_.Answered();  // nothing was sent
}

TEST_F(UntoldEndsTest, AreBoundedAndTheOldestGoFirst) {
  Add(1);
  ends_.Send();
  for (uint64_t serial = 2; serial <= UntoldEnds::kMax + 1; ++serial) Add(serial);
  EXPECT_EQ(ends_.size(), UntoldEnds::kMax);
  EXPECT_EQ(ends_.unanswered(), 0u) << "what was sent has gone";
  ends_.Answered();
  EXPECT_EQ(ends_.Send().front().id.serial, 2u);
}

TEST_F(UntoldEndsTest, AFailureMattersWhileItsRequestMayLiveAndIsNotTold) {
  Add(1, /*engine_failed=*/false, 100);
  EXPECT_FALSE(ends_.HasEvidence(0));
  Add(2, /*engine_failed=*/true, 50);
  Add(3, /*engine_failed=*/true, 70);
  EXPECT_TRUE(ends_.HasEvidence(69));
  EXPECT_FALSE(ends_.HasEvidence(70));
  ends_.Send();
  EXPECT_TRUE(ends_.HasEvidence(69)) << "it may not arrive";
  ends_.Answered();
  EXPECT_FALSE(ends_.HasEvidence(0));
}

}  // namespace
}  // namespace skein::scheduler
