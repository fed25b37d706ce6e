#include "scheduler/simulator/formations/group_world.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "scheduler/simulator/formations/builtin_step_profiles.h"
#include "scheduler/worker/group/own_pause.h"

namespace skein::scheduler {
namespace {

using Phase = FormationTold::Phase;

const StepProfile& Profile() { return *FindStepProfile("llama3-70b-h200-bf16"); }

// Four instances with one request each, and one more that arrives when they are bound.
class GroupWorldTest : public testing::TestWithParam<OwnSequences> {
 protected:
  GroupWorldTest()
      : requests_(5, GroupRequest{.prompt_tokens = 500, .output_tokens = 40}),
        world_(&Profile(), {.members = 4, .shift = false}, &requests_) {}

  // Runs until the next step ends; false: nothing runs.
  bool Advance() {
    if (world_.NextEnd() == kNever) return false;
    now_ = world_.NextEnd();
    world_.Advance(now_);
    return true;
  }
  int64_t Told(Phase phase) {
    int64_t count = 0;
    for (const auto& [member, told] : world_.TakeTold()) count += told.phase == phase ? 1 : 0;
    return count;
  }
  void Prepare() {
    for (int32_t i = 0; i < 4; ++i) {
      world_.Prepare(i, {.epoch = 7, .first = 0, .size = 4, .own = GetParam()});
    }
    world_.Advance(now_);
  }
  int64_t Steps(StepKind kind) const {
    return world_.record().steps()[static_cast<size_t>(kind)].count;
  }

  std::vector<GroupRequest> requests_;
  GroupWorld world_;
  TimeUs now_ = 0;
};

TEST_P(GroupWorldTest, BindsAndReleasesAndEveryRequestEnds) {
  for (size_t i = 0; i < 4; ++i) world_.Arrive(i);
  world_.Advance(0);
  Advance();
  Prepare();
  int64_t prepared = Told(Phase::kPrepared);
  EXPECT_EQ(prepared, GetParam() == OwnSequences::kSequential    ? 0
                      : GetParam() == OwnSequences::kSoftPreempt ? 1
                                                                 : 4);
  while (prepared < 4) {
    ASSERT_TRUE(Advance());
    prepared += Told(Phase::kPrepared);
  }
  EXPECT_EQ(Steps(StepKind::kTp), 0);
  world_.Commit(7, {0, 4}, now_);
  world_.Advance(now_);
  while (world_.NextEnd() != kNever && Steps(StepKind::kTp) == 0 && Told(Phase::kBound) == 0) {
    Advance();
  }
  world_.Arrive(4);
  world_.Advance(now_);
  const int64_t own = Steps(StepKind::kOwn);
  while (Steps(StepKind::kTp) < 5) ASSERT_TRUE(Advance());
  if (GetParam() == OwnSequences::kHardPreempt) {
    EXPECT_LE(Steps(StepKind::kOwn), own + 4);
  } else if (GetParam() == OwnSequences::kShare) {
    EXPECT_GT(Steps(StepKind::kOwn), own + 4);
  }
  world_.End(0, 7, Switch::kSequential, now_);
  while (Advance()) {
  }
  EXPECT_EQ(Told(Phase::kEnded), 4);
  EXPECT_TRUE(world_.Idle());
  EXPECT_NEAR(world_.held_share(), 0, 1e-9);
  for (const GroupOutcome& outcome : world_.record().outcomes()) EXPECT_EQ(outcome.made, 40);
}

TEST_P(GroupWorldTest, AHardEndGivesTheLeadWhatTheGroupRan) {
  Prepare();
  EXPECT_EQ(Told(Phase::kPrepared), 4);
  world_.Commit(7, {0, 4}, now_);
  world_.Advance(now_);
  EXPECT_EQ(Told(Phase::kBound), 4);
  world_.Arrive(0);
  world_.Advance(now_);
  for (int i = 0; i < 10; ++i) Advance();
  EXPECT_EQ(world_.record().outcomes()[0].made, 10);
  world_.End(0, 7, Switch::kHard, now_);
  Advance();
  EXPECT_EQ(Told(Phase::kEnded), 4);
  const int64_t bound = Steps(StepKind::kTp);
  EXPECT_EQ(world_.Load().members[0].running_sequences, 1);
  while (Advance()) {
  }
  EXPECT_EQ(Steps(StepKind::kTp), bound);
  EXPECT_EQ(world_.record().outcomes()[0].made, 40);
}

TEST_P(GroupWorldTest, AnEndBeforeTheCommitLeavesEverybodyAlone) {
  Prepare();
  for (int32_t i = 0; i < 4; ++i) world_.End(i, 7, Switch::kHard, now_);
  EXPECT_EQ(Told(Phase::kEnded), 4);
  world_.Commit(7, {0, 4}, now_);  // too late
  world_.Arrive(0);
  world_.Advance(now_);
  while (Advance()) {
  }
  EXPECT_EQ(Steps(StepKind::kTp), 0);
  EXPECT_EQ(world_.record().outcomes()[0].made, 40);
}

std::string NameOf(const testing::TestParamInfo<OwnSequences>& info) {
  return std::string(ToString(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, GroupWorldTest,
                         testing::Values(OwnSequences::kShare, OwnSequences::kSequential,
                                         OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt),
                         NameOf);

void Bind(OwnSequences own, TimeUs* now, GroupWorld* world,
          std::optional<TimeUs> own_pause_us = {}) {
  PrepareFormation order = {.epoch = 3, .first = 0, .size = 2, .own = own};
  order.own_pause_us = own_pause_us;
  for (int32_t i = 0; i < 2; ++i) world->Prepare(i, order);
  world->Advance(*now);
  auto prepared = static_cast<int64_t>(world->TakeTold().size());
  while (prepared < 2) {
    world->Advance(*now = world->NextEnd());
    prepared += static_cast<int64_t>(world->TakeTold().size());
  }
  world->Commit(3, {0, 2}, *now);
}

// Soft preempt: the lead begins requests meanwhile, which the group computes anew.
TEST(GroupWorld, SoftBindBeginsRequestsAtTheLead) {
  const std::vector<GroupRequest> requests = {{.prompt_tokens = 500, .output_tokens = 200},
                                              {.prompt_tokens = 500, .output_tokens = 60}};
  GroupWorld world(&Profile(), {.members = 2, .shift = false}, &requests);
  for (size_t i = 0; i < 2; ++i) world.Arrive(i);  // one at each
  world.Advance(0);
  TimeUs now = 0;
  Bind(OwnSequences::kSoftPreempt, &now, &world);
  const int64_t alone = world.record().outcomes()[0].made;
  EXPECT_GT(alone, 20);
  EXPECT_EQ(world.record().outcomes()[1].made, 60);
  world.Advance(now);
  while (world.NextEnd() != kNever) world.Advance(world.NextEnd());
  EXPECT_EQ(world.record().outcomes()[0].made, 200);
  EXPECT_GE(world.record().steps()[static_cast<size_t>(StepKind::kTp)].count, 200 - alone - 1);
}

// So does each other instance once it has nothing to run, while others are waited for.
TEST(GroupWorld, SoftBindBeginsRequestsAtWhoIsIdle) {
  const std::vector<GroupRequest> requests = {{.prompt_tokens = 500, .output_tokens = 200},
                                              {.prompt_tokens = 500, .output_tokens = 10},
                                              {.prompt_tokens = 500, .output_tokens = 100},
                                              {.prompt_tokens = 500, .output_tokens = 100},
                                              {.prompt_tokens = 500, .output_tokens = 300}};
  GroupWorld world(&Profile(), {.members = 4, .shift = false}, &requests);
  for (size_t i = 0; i < 4; ++i) world.Arrive(i);  // one at each
  world.Advance(0);
  TimeUs now = 0;
  for (int32_t i = 0; i < 4; ++i) {
    world.Prepare(i, {.epoch = 3, .first = 0, .size = 4, .own = OwnSequences::kSoftPreempt});
  }
  const auto made = [&](size_t request) { return world.record().outcomes()[request].made; };
  size_t prepared = 0;
  const auto advance = [&] {
    world.Advance(now = world.NextEnd());
    prepared += world.TakeTold().size();
  };
  while (made(1) < 10) advance();
  EXPECT_EQ(prepared, 2u) << "the lead, and the one that is idle";
  world.Arrive(4);
  while (prepared < 4) advance();
  EXPECT_EQ(world.Load().members[1].running_sequences, 1);
  EXPECT_GT(made(4), 60) << "it began there alone while the others ended";
  const int64_t begun = made(4);
  world.Commit(3, {0, 4}, now);
  while (world.NextEnd() != kNever) world.Advance(world.NextEnd());
  EXPECT_EQ(made(4), 300);
  const auto steps = [&](StepKind kind) {
    return world.record().steps()[static_cast<size_t>(kind)].count;
  };
  EXPECT_GE(steps(StepKind::kTp), 300 - begun - 1) << "the group computes it anew, and goes on";
  EXPECT_TRUE(world.Idle());
}

// Hard preempt: own sequences pause while the group has work, for so long at most.
void ExpectPause(std::optional<TimeUs> ordered_us, TimeUs pause_us) {
  const std::vector<GroupRequest> requests = {{.prompt_tokens = 500, .output_tokens = 100},
                                              {.prompt_tokens = 500, .output_tokens = 100},
                                              {.prompt_tokens = 500, .output_tokens = 20'000}};
  GroupWorld world(&Profile(), {.members = 2, .shift = false}, &requests);
  for (size_t i = 0; i < 2; ++i) world.Arrive(i);
  world.Advance(0);
  TimeUs now = 0;
  Bind(OwnSequences::kHardPreempt, &now, &world, ordered_us);
  world.Advance(now = world.NextEnd());
  world.Arrive(2);
  world.Advance(now);
  const auto made = [&] { return world.record().outcomes()[0].made; };
  const TimeUs bound_us = now;
  while (now < bound_us + pause_us - kSecondUs) world.Advance(now = world.NextEnd());
  EXPECT_LT(made(), 5);
  while (now < bound_us + pause_us + 10 * kSecondUs) world.Advance(now = world.NextEnd());
  EXPECT_EQ(made(), 100);
  EXPECT_LT(world.record().outcomes()[2].made, 20'000);
}

TEST(GroupWorld, APauseEndsAMinuteAfterTheBind) { ExpectPause({}, kOwnPauseUs); }

TEST(GroupWorld, AnOrderSaysHowLongThePauseIs) { ExpectPause(20 * kSecondUs, 20 * kSecondUs); }

// As at decode_pool.h: others keep off it until it is more than four times as free, this one
// counted.
TEST(GroupWorld, OthersGoToAGroupForUrgentRequestsOnlyIfItHasMuchLessToDo) {
  std::vector<GroupRequest> requests(19, GroupRequest{.prompt_tokens = 400, .output_tokens = 40});
  requests[0].priority = requests[18].priority = 1;
  GroupWorld world(&Profile(), {.members = 4, .shift = false}, &requests);
  world.BindForGood({0, 2});
  world.SetReason(0, orchestrator::BindReason::kPriority);
  const auto at_group = [&] { return 2 * world.Load().members[0].running_tokens; };
  world.Arrive(0);
  for (size_t i = 1; i <= 16; ++i) {  // eight at each of the others
    world.Arrive(i);
    EXPECT_EQ(at_group(), 400) << i;
  }
  world.Arrive(17);
  EXPECT_EQ(at_group(), 800);
  world.Arrive(18);
  EXPECT_EQ(at_group(), 1200) << "it is urgent";
}

// No instance holds more KV than it has; what fits none is refused.
TEST(GroupWorld, WaitsForKvAndRefusesWhatFitsNoFormation) {
  const int64_t one = Profile().KvTokens(1, 1);
  const std::vector<GroupRequest> requests = {{.prompt_tokens = one - 100, .output_tokens = 20},
                                              {.prompt_tokens = one - 100, .output_tokens = 20},
                                              {.prompt_tokens = 2 * one, .output_tokens = 100}};
  GroupWorld world(&Profile(), {.members = 1}, &requests);
  for (size_t i = 0; i < 3; ++i) world.Arrive(i);
  EXPECT_TRUE(world.record().outcomes()[2].refused);
  world.Advance(0);
  EXPECT_EQ(world.Load().waiting_requests, 1);
  while (world.NextEnd() != kNever) {
    EXPECT_LE(world.held_share(), 1);
    world.Advance(world.NextEnd());
  }
  EXPECT_GE(world.record().outcomes()[1].started_us, world.record().outcomes()[0].last_token_us);
  EXPECT_TRUE(world.Idle());
}

}  // namespace
}  // namespace skein::scheduler
