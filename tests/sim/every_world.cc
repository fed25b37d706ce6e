#include "tests/sim/every_world.h"

#include <utility>

#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

// What is refused was not accepted before, and what was accepted ends well, or honestly where
// something breaks (RouterProcess::CheckHonest).
TEST_P(EveryWorldTest, OverloadEndsNothingThatWasAccepted) {
  const Slice& slice = GetParam();
  Outcome sum;
  for (uint64_t seed = slice.first(); seed < slice.first() + slice.seeds; ++seed) {
    Scenario scenario = slice.make(seed);
    LimitRequests(&scenario);
    const Outcome outcome = RunWorld(std::move(scenario));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed << " with few requests at a time";
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.refused, 0);
  EXPECT_GT(sum.finished, 0);
}

TEST_P(EveryWorldTest, SameSeedSameTrace) {
  const Slice& slice = GetParam();
  const auto hash_of = [&](uint64_t seed) { return RunWorld(slice.make(seed)).trace_hash; };
  const uint64_t hash = hash_of(slice.first());
  EXPECT_EQ(hash_of(slice.first()), hash) << "seed " << slice.first();
  EXPECT_NE(hash_of(slice.first() + 1), hash);
}

TEST_P(EveryWorldTest, OneFaultWithRoomToSpareFailsNoRequest) {
  for (uint64_t i = 0; i < GetParam().seeds; ++i) {
    Scenario scenario = Faultless(i);
    LeaveNoExcuse(&scenario);
    const Outcome outcome = RunWorld(scenario);
    EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
    EXPECT_EQ(outcome.finished, outcome.requests);
  }
}

// Streams between the orchestrator and the others break again and again.
TEST_P(EveryWorldTest, AResyncFailsNoRequest) {
  for (uint64_t i = 0; i < GetParam().seeds; ++i) {
    Scenario scenario = Faultless(i);
    BreakLinks(&scenario);
    const Outcome outcome = RunWorld(scenario);
    EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
    EXPECT_EQ(outcome.finished, outcome.requests);
  }
}

// One end of a stream believes that it stands while the other has lost it, or hears nothing there.
TEST_P(EveryWorldTest, HalfOpenStreamsFailNoRequest) {
  for (uint64_t i = 0; i < GetParam().seeds; ++i) {
    Scenario scenario = Faultless(i);
    HalfOpenStreams(&scenario);
    const Outcome outcome = RunWorld(scenario);
    EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
    EXPECT_EQ(outcome.finished, outcome.requests);
  }
}

// The orchestrator's clock jumps by many leases, and nothing else breaks: no instance is given up,
// and no request fails.
TEST_P(EveryWorldTest, AClockThatJumpsFencesNobody) {
  Scenario scenario = Faultless();
  JumpClocks(&scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
  EXPECT_EQ(outcome.finished, outcome.requests);
  EXPECT_EQ(outcome.instances_lost, 0);
}

// No request fails, each worker is emptied and serves again: CheckHonest and CheckRest see to it.
TEST_P(EveryWorldTest, AnOperatorsDrainFailsNoRequest) {
  Scenario scenario = Faultless();
  OrderDrains(&scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
  EXPECT_GT(outcome.drains_ordered, 0);
  EXPECT_GT(outcome.router_drains, 0);
}

}  // namespace
}  // namespace skein::sim
