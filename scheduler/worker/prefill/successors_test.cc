#include "scheduler/worker/prefill/successors.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

AssignRequest Assign(uint64_t serial, uint64_t epoch, uint64_t sequence) {
  return {.spec = testing::Spec(serial), .epoch = {epoch}, .sequence = {sequence}};
}

TEST(Successors, AllAssignsOfAPlanWaitInOrder) {
  Successors successors;
  EXPECT_EQ(successors.EpochOf({7, 1}), std::nullopt);
  successors.Add(Assign(1, 6, 10));
  successors.Add(Assign(1, 6, 11));
  successors.Add(Assign(2, 5, 12));
  EXPECT_EQ(successors.EpochOf({7, 1}), Epoch{6});
  EXPECT_TRUE(successors.CheckInvariants().ok());
  const std::vector<AssignRequest> taken = successors.Take({7, 1}).assigns;
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].sequence, PlanSequence{10});
  EXPECT_EQ(taken[1].sequence, PlanSequence{11});
  EXPECT_TRUE(successors.Take({7, 1}).assigns.empty());
  EXPECT_EQ(successors.all().size(), 1u);
}

TEST(Successors, TheFirstAssignLearnsThePlace) {
  Successors successors;
  successors.Add(Assign(1, 6, 10));
  successors.Start({{7, 1}, {5}, {{5}, {4}, "old:1"}});
  successors.Start({{7, 1}, {6}, {{6}, {4}, "d:1"}});
  successors.Start({{7, 2}, {6}, {{6}, {4}, "unknown:1"}});
  EXPECT_EQ(successors.Take({7, 1}).assigns.front().placed->endpoint, "d:1");
  EXPECT_TRUE(successors.empty());
}

TEST(Successors, AStartTellsOfTheAssignsBeforeItThatAllMembersHaveThem) {
  Successors successors;
  successors.Add(Assign(1, 6, 10));
  successors.Start({{7, 1}, {6}, {{6}, {4}, "d:1"}});
  successors.Add(Assign(1, 6, 11));
  Successors::Plan plan = successors.Take({7, 1});
  EXPECT_FALSE(plan.all_have_it);
  EXPECT_EQ(plan.assigns.front().placed->endpoint, "d:1");
  successors.Add(Assign(1, 6, 10));
  successors.Start({{7, 1}, {6}, {{6}, {4}, "d:1"}});
  EXPECT_TRUE(successors.Take({7, 1}).all_have_it);
}

TEST(Successors, TwoPlansOfOneRequestViolateTheInvariant) {
  Successors successors;
  successors.Add(Assign(1, 6, 10));
  successors.Add(Assign(1, 7, 11));
  EXPECT_EQ(successors.CheckInvariants().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace skein::scheduler
