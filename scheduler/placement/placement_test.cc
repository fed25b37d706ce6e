#include <gtest/gtest.h>

#include "scheduler/placement/freeness.h"
#include "scheduler/placement/queue_time.h"
#include "scheduler/placement/step_age.h"

namespace skein::scheduler {
namespace {

TEST(FreenessTest, IsAvailableBlocksOverTheBatch) {
  EXPECT_DOUBLE_EQ(Freeness({{1}, 100, 0, 3, 0}), 25.0);
  EXPECT_DOUBLE_EQ(Freeness({{1}, 100, 40, 3, 2}), 10.0);
  EXPECT_DOUBLE_EQ(Freeness({{1}, 10, 40, 0, 1}), 0.0);
}

TEST(FreenessTest, PicksTheFreestThatHasRoom) {
  EXPECT_EQ(PickDecode({{{1}, 100, 0, 9, 0}, {{2}, 50, 0, 1, 0}}, 10), InstanceId{2});
  EXPECT_EQ(PickDecode({{{1}, 100, 0, 9, 0}, {{2}, 50, 0, 1, 0}}, 60), InstanceId{1});
  EXPECT_EQ(PickDecode({{{2}, 50, 0, 0, 0}, {{1}, 50, 0, 0, 0}}, 1), InstanceId{1});
  EXPECT_EQ(PickDecode({{{1}, 100, 95, 0, 0}}, 6), std::nullopt);
  EXPECT_EQ(PickDecode({}, 1), std::nullopt);
}

TEST(FreenessTest, CountsLessAtOneThatIsSlowBesideItsPeers) {
  const DecodeCandidate slow{{1}, 100, 0, 3, 0, /*step_s=*/0, /*weight=*/0.25};
  EXPECT_DOUBLE_EQ(Freeness(slow), 6.25);
  EXPECT_EQ(PickDecode({slow, {{2}, 50, 0, 6, 0}}, 10), InstanceId{2});
  EXPECT_EQ(PickDecode({slow, {{2}, 50, 0, 9, 0}}, 10), InstanceId{1});
}

TEST(FreenessTest, ASlowOneIsTheLastChoice) {
  const DecodeCandidate slow{{1}, 100, 0, 1, 0, /*step_s=*/0.26};
  const DecodeCandidate usual{{2}, 20, 0, 4, 0, /*step_s=*/0.05};
  EXPECT_EQ(PickDecode({slow, usual}, 10), InstanceId{2});
  EXPECT_EQ(PickDecode({slow, usual}, 30), InstanceId{1}) << "no other has room";
  EXPECT_EQ(PickDecode({slow}, 10), InstanceId{1});
  DecodeCandidate somewhat = slow;
  somewhat.step_s = 0.25;
  EXPECT_EQ(PickDecode({somewhat, usual}, 10), InstanceId{1});
  DecodeCandidate idle = slow;
  idle.step_s = 0;
  EXPECT_EQ(PickDecode({idle, usual}, 10), InstanceId{1});
  DecodeCandidate full = usual;
  full.free_blocks = 0;
  EXPECT_EQ(PickDecode({slow, full, {{3}, 20, 0, 4, 0}}, 10), InstanceId{3})
      << "the full one is the measure, too";
}

TEST(FreenessTest, VirtualUsageSpreadsABurst) {
  std::vector<DecodeCandidate> candidates = {{{1}, 1000, 0, 0, 0}, {{2}, 1000, 0, 0, 0}};
  for (int i = 0; i < 10; ++i) {
    const InstanceId pick = *PickDecode(candidates, 10);
    for (DecodeCandidate& candidate : candidates) {
      if (candidate.instance != pick) continue;
      candidate.unreported_blocks += 10;
      ++candidate.unreported_requests;
    }
  }
  EXPECT_EQ(candidates[0].unreported_requests, 5);
  EXPECT_EQ(candidates[1].unreported_requests, 5);
}

TEST(QueueTimeTest, CountsUnreportedTokensAndTheRate) {
  EXPECT_DOUBLE_EQ(QueueSeconds({{1}, 300, 200, 100}), 5.0);
}

TEST(StepAgeTest, AStepIsSuspectWhenItIsMuchOlderThanItsLike) {
  EXPECT_FALSE(IsStepSuspect(0, 0));
  EXPECT_FALSE(IsStepSuspect(10 * kSecondUs, 0)) << "no estimate of the step";
  EXPECT_TRUE(IsStepSuspect(10 * kSecondUs + 1, 0));
  EXPECT_FALSE(IsStepSuspect(2 * kSecondUs, 10)) << "below the minimum age";
  EXPECT_TRUE(IsStepSuspect(2 * kSecondUs + 1, 10));
  EXPECT_FALSE(IsStepSuspect(60 * kSecondUs, 3 * kSecondUs)) << "a slow device";
  EXPECT_TRUE(IsStepSuspect(61 * kSecondUs, 3 * kSecondUs));
  EXPECT_FALSE(IsStepSuspect(kNever - 1, kNever / 2)) << "no overflow";
}

TEST(StepAgeTest, AStepHangsWhenItIsSuspectAndAsOldAsTheBound) {
  constexpr TimeUs kBound = 10 * kSecondUs;
  EXPECT_FALSE(IsStepHung(9 * kSecondUs, 10 * kMillisecondUs, kBound));
  EXPECT_TRUE(IsStepHung(10 * kSecondUs, 10 * kMillisecondUs, kBound));
  EXPECT_FALSE(IsStepHung(10 * kSecondUs, kSecondUs, kBound)) << "such a step may take so long";
  EXPECT_FALSE(IsStepHung(29 * kSecondUs, 0, kBound)) << "the first one";
  EXPECT_TRUE(IsStepHung(30 * kSecondUs, 0, kBound));
  EXPECT_FALSE(IsStepHung(kNever, 1, 0)) << "switched off";
}

}  // namespace
}  // namespace skein::scheduler
