#include "scheduler/orchestrator/requests/lost_attempts.h"

#include <gtest/gtest.h>

#include <set>

namespace skein::scheduler::orchestrator {
namespace {

using Decodes = std::set<InstanceId>;

class LostAttemptsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(lost_.CheckInvariants().ok()); }

  LostAttempts lost_;
};

TEST_F(LostAttemptsTest, TheNextAttemptTakesThem) {
  const RequestId first{7, 1};
  lost_.Note(first, {{{3}}, {}});
  EXPECT_EQ(lost_.Take({7, 2}).decodes, Decodes{});
  EXPECT_EQ(lost_.Take(first.Attempt(1)).decodes, Decodes{{3}});
  EXPECT_EQ(lost_.Take(first.Attempt(1)).decodes, Decodes{});
  lost_.Note(first.Attempt(1), {{{3}, {4}}, {}});
  EXPECT_EQ(lost_.Take(first.Attempt(2)).decodes, (Decodes{{3}, {4}}));
}

TEST_F(LostAttemptsTest, TheLatestOfARequestCounts) {
  const RequestId first{7, 1};
  lost_.Note(first, {{{3}}, {}});
  lost_.Note(first.Attempt(1), {{{4}}, {}});
  EXPECT_EQ(lost_.size(), 1u);
  lost_.Note(first.Attempt(2), {});
  EXPECT_EQ(lost_.size(), 0u);
}

TEST_F(LostAttemptsTest, WhoComputedThePromptIsKnownToTheNextAttempt) {
  const RequestId first{7, 1};
  lost_.Note(first, {{}, {5}});
  EXPECT_EQ(lost_.Take(first.Attempt(1)).kept_at, InstanceId{5});
  EXPECT_EQ(lost_.Take(first.Attempt(1)).kept_at, InstanceId{});
}

TEST_F(LostAttemptsTest, ForgetsARequestAndARouter) {
  for (const uint64_t router : {6, 7, 8}) lost_.Note({router, 1}, {{{3}}, {}});
  lost_.Note({7, 2}, {{{3}}, {}});
  lost_.Forget({8, 1});
  lost_.ForgetRouter(7);
  EXPECT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_.Take({6, 1}).decodes, Decodes{{3}});
}

TEST_F(LostAttemptsTest, IsBounded) {
  for (uint64_t serial = 0; serial <= LostAttempts::kMax; ++serial)
    lost_.Note({7, serial}, {{{3}}, {}});
  EXPECT_EQ(lost_.size(), LostAttempts::kMax);
  EXPECT_EQ(lost_.Take({7, 0}).decodes, Decodes{});
  EXPECT_EQ(lost_.Take({7, LostAttempts::kMax}).decodes, Decodes{{3}});
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
