#include "scheduler/orchestrator/prefill_flow.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

class PrefillFlowTest : public PartsTest {
 protected:
  using PartsTest::PartsTest;

  void TakesNothing(InstanceId id, bool avoid = true) {
    registry_.Find(id)->avoid = avoid;
    registry_.Recount(*registry_.Find(id));
  }
  uint64_t Parked() const {
    return explanations_.degraded()[static_cast<size_t>(Degraded::kParked)];
  }
};

TEST_F(PrefillFlowTest, APromptGoesToTheInstanceThatIsFreeFirst) {
  const InstanceId busy = Join(Role::kPrefill, 1);
  registry_.Find(busy)->load.queued_tokens = 500;
  const InstanceId free = Join(Role::kPrefill, 2);
  const Request& request = Submit(1);
  EXPECT_EQ(request.state, State::kAssigning);
  EXPECT_EQ(request.epoch, numbers_.last_epoch());
  ASSERT_EQ(request.members.size(), 1u);
  EXPECT_EQ(request.members[0].instance, free);
  EXPECT_TRUE(request.IsPlanWhole());
  EXPECT_FALSE(request.sequence_parallel);
  EXPECT_EQ(registry_.Find(free)->placed.size(), 1u);
  ASSERT_EQ(Of<CallAssign>().size(), 1u);
  EXPECT_EQ(Of<CallAssign>()[0].request.epoch, request.epoch);
  ASSERT_EQ(Of<SendPlanUpdate>().size(), 1u) << "its router hears of the plan";
  ASSERT_EQ(request.explanation.plans.size(), 1u);
  EXPECT_EQ(request.explanation.plans[0].epoch, request.epoch);
  EXPECT_EQ(prefill_.sp_plans(), 0u);
}

TEST_F(PrefillFlowTest, WithoutAnInstanceARequestFails) {
  Submit(1);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], "1 failed: No prefill instance of model 'm' is available. Retry.");
}

TEST_F(PrefillFlowTest, APromptThatNoInstanceHoldsFails) {
  Join(Role::kPrefill, 1);
  Submit(1, 41);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].rfind("1 failed: ", 0), 0u) << ends_[0];
}

TEST_F(PrefillFlowTest, ParkedRequestsArePlannedInTheirOrderWhenThereIsRoom) {
  const InstanceId only = Join(Role::kPrefill, 1);
  TakesNothing(only);
  Request& first = Submit(1);
  Request& second = Submit(2);
  EXPECT_EQ(first.state, State::kParked);
  prefill_.PlanParked(now_);
  EXPECT_EQ(Parked(), 2u) << "explain tells it";

  TakesNothing(only, false);
  prefill_.PlanParked(now_);
  EXPECT_EQ(first.state, State::kParked) << "nobody said that there is room";
  Request& third = Submit(3);
  EXPECT_EQ(third.state, State::kParked) << "those that are parked come first";
  effects_.clear();
  prefill_.PlanParked(now_);
  const std::vector<CallAssign> assigns = Of<CallAssign>();
  ASSERT_EQ(assigns.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(assigns[i].request.spec->id.serial, i + 1);
  EXPECT_EQ(second.state, State::kAssigning);
}

TEST_F(PrefillFlowTest, TheRoomOfAForgottenPlanGoesToAParkedRequest) {
  const InstanceId only = Join(Role::kPrefill, 1);
  registry_.Find(only)->identity.max_requests = 1;
  registry_.Recount(*registry_.Find(only));
  Request& first = Submit(1);
  Request& second = Submit(2);
  EXPECT_EQ(second.state, State::kParked);
  End(first, "cancelled");
  EXPECT_TRUE(registry_.Find(only)->placed.empty());
  prefill_.PlanParked(now_);
  EXPECT_EQ(second.state, State::kAssigning);
}

TEST_F(PrefillFlowTest, AParkedRequestWhoseInstancesAreGoneFails) {
  const InstanceId only = Join(Role::kPrefill, 1);
  TakesNothing(only);
  Submit(1);
  registry_.Remove(only);
  groups_.Left(only, now_);
  prefill_.NoteRoom("m");
  prefill_.PlanParked(now_);
  ASSERT_EQ(ends_.size(), 1u);
}

TEST_F(PrefillFlowTest, APlanThatItsMemberTookIsAssignedAndEndsThere) {
  const InstanceId only = Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Member& lead = request.members[0];
  prefill_.Accepted(request, lead, now_);
  EXPECT_EQ(request.state, State::kAssigned);
  EXPECT_EQ(registry_.Find(only)->placed.size(), 1u);
  now_ = 70;
  prefill_.MemberDone(request, lead, now_);
  EXPECT_EQ(lead.phase, Member::Phase::kGone);
  EXPECT_TRUE(registry_.Find(only)->placed.empty());
  EXPECT_EQ(request.explanation.prefilled_us, 70);
  now_ = 90;
  prefill_.NotePrefilled(request, now_);
  EXPECT_EQ(request.explanation.prefilled_us, 70) << "the first time counts";
}

// `token_s`: of a prompt on one instance.
std::shared_ptr<const PlanningConfig> PlanningBy(const char* policy, double token_s = 1e-3) {
  return std::make_shared<PlanningConfig>(PlanningConfig{
      .latency =
          LatencyModel::Make({{1, {0, token_s, 0, 0}}, {2, {1e-3, 0.55 * token_s, 0, 0}}}).value(),
      .policy = *Policy::Parse(policy),
      .tables = {ImprovementRateTable::Constant(0), RollingTable::Constant({})},
      .node_size = 4});
}

class SpPrefillFlowTest : public PrefillFlowTest {
 protected:
  explicit SpPrefillFlowTest(const char* policy = "fixed2", double token_s = 1e-3)
      : PrefillFlowTest(PlanningBy(policy, token_s)) {
    Join(Role::kPrefill, 1);
    Join(Role::kPrefill, 2);
  }
};

TEST_F(SpPrefillFlowTest, AllMembersGetTheSamePlan) {
  const Request& request = Submit(1, 16);
  ASSERT_EQ(request.members.size(), 2u);
  EXPECT_TRUE(request.sequence_parallel);
  EXPECT_EQ(prefill_.sp_plans(), 1u);
  const std::vector<CallAssign> assigns = Of<CallAssign>();
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_NE(assigns[0].instance, assigns[1].instance);
  for (const CallAssign& assign : assigns) {
    EXPECT_EQ(assign.request.epoch, request.epoch);
    EXPECT_EQ(assign.request.sequence, request.chunks[0].sequence);
    EXPECT_EQ(assign.request.members.size(), 2u);
  }
}

TEST_F(SpPrefillFlowTest, ItIsAssignedWhenAllHaveTakenIt) {
  Request& request = Submit(1, 16);
  prefill_.Accepted(request, request.members[1], now_);
  EXPECT_EQ(request.state, State::kAssigning);
  prefill_.Accepted(request, request.members[0], now_);
  EXPECT_EQ(request.state, State::kAssigned);
}

TEST_F(SpPrefillFlowTest, AChunkBeginsWithItsLastMemberAndEndsWithItsLastMember) {
  Request& request = Submit(1, 16);
  for (Member& member : request.members) prefill_.Accepted(request, member, now_);
  ASSERT_EQ(request.chunks.size(), 1u);
  const Chunk& chunk = request.chunks[0];
  const auto tell = [&](size_t member, uint32_t done, TimeUs running_us) {
    prefill_.TakeProgress(request, request.members[member],
                          {.id = request.spec->id,
                           .epoch = request.epoch,
                           .chunks_done = done,
                           .chunk_running_us = running_us},
                          now_);
  };
  now_ = 100;
  tell(0, 0, 30);
  EXPECT_EQ(chunk.started_us, -1) << "it waits for the other";
  tell(1, 0, 10);
  EXPECT_EQ(chunk.started_us, 90);
  now_ = 200;
  tell(1, 1, -1);
  EXPECT_EQ(chunk.ended_us, -1);
  tell(0, 1, -1);
  EXPECT_EQ(chunk.ended_us, 200);
}

TEST_F(SpPrefillFlowTest, APlanWithAHoleViolatesTheInvariants) {
  Request& request = Submit(1, 16);
  EXPECT_TRUE(prefill_.CheckInvariants().ok()) << prefill_.CheckInvariants();
  request.chunks[0].history = 4;
  EXPECT_FALSE(prefill_.CheckInvariants().ok());
  request.chunks[0].history = 0;
}

class RollingPrefillFlowTest : public SpPrefillFlowTest {
 protected:
  RollingPrefillFlowTest() : SpPrefillFlowTest("rolling") {}
};

TEST_F(RollingPrefillFlowTest, ARequestIsQueuedUntilThePlannerStartsItsFirstChunk) {
  prefill_.NoteArrival("m", now_);
  Request& request = Submit(1, 16);
  EXPECT_EQ(request.state, State::kQueued);
  EXPECT_NE(request.rolling_key, 0);
  EXPECT_TRUE(Of<CallAssign>().empty());
  prefill_.DecideRolling(now_);
  EXPECT_EQ(request.state, State::kAssigning);
  EXPECT_TRUE(request.rolling_running);
  EXPECT_FALSE(Of<CallAssign>().empty());
  EXPECT_TRUE(prefill_.CheckInvariants().ok()) << prefill_.CheckInvariants();
}

TEST_F(RollingPrefillFlowTest, OfSeveralTenantsOnlyFewWaitAtThePlanner) {
  Request& first = Submit(1, 16, "quiet");
  Request& second = Submit(2, 16, "burst");
  EXPECT_EQ(second.state, State::kQueued);
  Request& third = Submit(3, 16, "burst");
  Submit(4, 16, "burst");
  EXPECT_EQ(third.state, State::kParked) << "as many wait as there are instances";
  prefill_.PlanParked(now_);
  EXPECT_EQ(third.state, State::kParked);
  prefill_.DecideRolling(now_);
  EXPECT_EQ(first.state, State::kAssigning);
  prefill_.PlanParked(now_);
  EXPECT_EQ(third.state, State::kQueued) << "less do, as the planner has started some";
  EXPECT_TRUE(prefill_.CheckInvariants().ok()) << prefill_.CheckInvariants();
}

TEST_F(RollingPrefillFlowTest, OfOneTenantAllWaitAtThePlanner) {
  for (uint64_t serial = 1; serial <= 9; ++serial) {
    EXPECT_EQ(Submit(serial, 16, "only").state, State::kQueued);
  }
}

// Plans on two instances that take more than two seconds each.
class LongPlansTest : public SpPrefillFlowTest {
 protected:
  LongPlansTest() : SpPrefillFlowTest("fixed2", /*token_s=*/0.1) {}
  void Compute(Request& request) {
    effects_.clear();
    for (Member& member : request.members) {
      member.chunks_done = 1;
      prefill_.MemberDone(request, member, now_);
    }
    prefill_.PlanParked(now_);
  }
};

TEST_F(LongPlansTest, ABurstIsPlannedLateSoThatAnotherTenantIsNext) {
  Request& quiet = Submit(1, 40, "quiet");
  EXPECT_EQ(quiet.state, State::kAssigning);
  std::vector<Request*> burst;
  for (uint64_t serial = 2; serial <= 5; ++serial) burst.push_back(&Submit(serial, 40, "burst"));
  for (const Request* one : burst) EXPECT_EQ(one->state, State::kParked);
  Compute(quiet);
  EXPECT_EQ(burst[0]->state, State::kAssigning) << "it waits alone, and gets everything";
  EXPECT_EQ(burst[1]->state, State::kParked);
  Request& next = Submit(6, 40, "quiet");
  EXPECT_EQ(next.state, State::kParked);
  Compute(*burst[0]);
  EXPECT_EQ(next.state, State::kAssigning) << "its tenant was given less";
  Compute(next);
  EXPECT_EQ(burst[1]->state, State::kAssigning);
  EXPECT_EQ(burst[2]->state, State::kParked);
}

TEST_F(LongPlansTest, OfOneTenantAllArePlannedAtOnce) {
  for (uint64_t serial = 1; serial <= 5; ++serial) {
    EXPECT_EQ(Submit(serial, 40, "only").state, State::kAssigning);
  }
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
