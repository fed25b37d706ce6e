// Two decode instances that share their weights: each runs its own batch, steps wait only while the
// engine changes, and no token is lost or changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "scheduler/worker/testing/core_testing.h"
#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;
using Phase = FormationTold::Phase;

constexpr TimeUs kWaitUs = 2 * kSecondUs;  // GroupConfig::extra_wait_us

class DecodeSharedTest : public testing::DecodePairTest {
 protected:
  using DecodePairTest::DecodePairTest;
  void PrepareShared(int rank, uint64_t epoch = 7) {
    Do(rank, PrepareFormation{.epoch = epoch,
                              .generation = 1,
                              .size = 2,
                              .keep_us = kSecondUs,
                              .shared = SharedMode::kWas});
  }
  // Both share under epoch 7, in WaS; each gets so many blocks, behind one that is no sequence's.
  void Share(int64_t extra = 0, uint64_t epoch = 7) {
    for (int rank = 0; rank < 2; ++rank) {
      PrepareShared(rank, epoch);
      Answer(rank);
      EXPECT_EQ(At(rank).told.phase, Phase::kPrepared);
    }
    for (int rank = 0; rank < 2; ++rank) Do(rank, CommitFormation{epoch});
    Step();  // what runs ends
    for (int rank = 0; rank < 2; ++rank) {
      Answer(rank, absl::OkStatus(), {{kFirstExtra}, extra});
      EXPECT_EQ(At(rank).told.phase, Phase::kBound);
    }
  }
  void Leave(int rank) { Do(rank, EndFormation{7, Switch::kHard, absl::CancelledError("online")}); }
  // The moves of the LeaveShared that was asked for.
  std::vector<BlockMove> Moves(int rank) {
    return std::get<LeaveShared>(At(rank).sharing.front()).moves;
  }
  BlockCounts Blocks(int rank = 0) { return Look(rank).blocks; }
  template <class Call>
  bool Asked(int rank) {
    return !At(rank).sharing.empty() && std::holds_alternative<Call>(At(rank).sharing.front());
  }
  void Answer(int rank, absl::Status status = absl::OkStatus(), BlockRange extra = {}) {
    ASSERT_FALSE(At(rank).sharing.empty());
    const uint64_t call =
        std::visit([](const auto& one) { return one.call; }, At(rank).sharing.front());
    At(rank).sharing.pop_front();
    Do(rank, SharingDone{call, std::move(status), extra});
  }
  static constexpr int32_t kFirstExtra = 11;

  void Order(int rank, OrderMode::Act act) {
    Do(rank, OrderMode{.epoch = 7, .turn = 1, .mode = SharedMode::kCas, .act = act});
  }
};

TEST_F(DecodeSharedTest, EachRunsItsOwnBatchAndStepsWaitOnlyForTheEngine) {
  StartOwn(0, Spec(1, 4, 20));
  StartOwn(1, Spec(2, 4, 20));
  PrepareShared(0);
  EXPECT_TRUE(Asked<scheduler::PrepareShared>(0));
  Step();
  EXPECT_EQ(At(0).engine.size(), 1u) << "steps go on while it is prepared";
  Answer(0);
  Do(0, CommitFormation{7});
  EXPECT_FALSE(Asked<EnterShared>(0)) << "a step runs";
  Step();
  ASSERT_TRUE(Asked<EnterShared>(0));
  Pass();
  EXPECT_TRUE(At(0).engine.empty()) << "nothing begins while the engine enters";
  EXPECT_FALSE(At(1).engine.empty()) << "the other one is not waited for";
  Answer(0);
  EXPECT_EQ(At(0).told.phase, Phase::kBound);
  EXPECT_EQ(At(0).engine.size(), 1u);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
  EXPECT_EQ(At(1).tokens[2], Expected(2, 20));
  EXPECT_EQ(At(0).group_steps, 0);
  EXPECT_TRUE(At(0).gaps.empty());
  ExpectAllFree();
}

TEST_F(DecodeSharedTest, TheModeChangesBetweenSteps) {
  StartOwn(0, Spec(1, 4, 20));
  Share();
  for (int rank = 0; rank < 2; ++rank) {
    Order(rank, OrderMode::Act::kReady);
    Answer(rank);
    ASSERT_EQ(At(rank).modes.size(), 1u);
    EXPECT_EQ(At(rank).modes[0].phase, ModeTold::Phase::kReady);
    Order(rank, OrderMode::Act::kSet);
  }
  EXPECT_TRUE(Asked<SetMode>(1));
  EXPECT_FALSE(Asked<SetMode>(0)) << "a step runs";
  Step();
  ASSERT_TRUE(Asked<SetMode>(0));
  EXPECT_TRUE(At(0).engine.empty());
  for (int rank = 0; rank < 2; ++rank) {
    Answer(rank);
    EXPECT_EQ(At(rank).modes.back().phase, ModeTold::Phase::kSet);
  }
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
}

TEST_F(DecodeSharedTest, ItLeavesBetweenStepsAndCanBeBoundThen) {
  StartOwn(0, Spec(1, 4, 30));
  Share();
  for (int rank = 0; rank < 2; ++rank) {
    Do(rank, EndFormation{7, Switch::kHard, absl::CancelledError("online")});
  }
  Step();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(Asked<LeaveShared>(rank));
    Answer(rank);
    EXPECT_EQ(At(rank).told.phase, Phase::kEnded);
    EXPECT_EQ(At(rank).told.why, absl::CancelledError("online"));
  }
  formation_ = 7;
  Bind();
  Release(Switch::kHard);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 30));
  ExpectAllFree();
}

TEST_F(DecodeSharedTest, OneThatIsBoundDoesNotShareAndTheOtherWayRound) {
  Bind();
  PrepareShared(0);
  EXPECT_EQ(At(0).told.why, absl::FailedPreconditionError("this instance holds epoch 1 still"));
  EXPECT_TRUE(At(0).sharing.empty());
  Release(Switch::kHard);
  RunAll();
  Share();
  Do(0, PrepareFormation{.epoch = 8, .generation = 1, .size = 2, .keep_us = kSecondUs});
  EXPECT_EQ(At(0).told.epoch, 8u);
  EXPECT_EQ(At(0).told.why, absl::FailedPreconditionError("this instance holds epoch 7 still"));
}

TEST_F(DecodeSharedTest, ADrainTakesTheWeightsBackFirst) {
  StartOwn(0, Spec(1, 4, 12));
  Share();
  Do(0, Drain{.grace_us = kSecondUs});
  Step();
  ASSERT_TRUE(Asked<LeaveShared>(0));
  Answer(0);
  EXPECT_EQ(At(0).told.phase, Phase::kEnded);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 12));
}

TEST_F(DecodeSharedTest, AnEngineWithoutItsWeightsHasFailed) {
  StartOwn(0, Spec(1, 4, 12));
  Share();
  Do(0, EndFormation{7, Switch::kHard, absl::CancelledError("online")});
  Step();
  Answer(0, absl::DataLossError("the owner has died, and the file is gone"));
  EXPECT_EQ(At(0).told.why, absl::DataLossError("the owner has died, and the file is gone"));
  EXPECT_TRUE(At(0).engine.empty());
  ASSERT_TRUE(At(0).streams_ended.contains(1));
}

// ---- the blocks that sharing frees ----

class DecodeExtraTest : public DecodeSharedTest {
 protected:
  DecodeExtraTest() : DecodeSharedTest(/*max_requests=*/20) {}
};

TEST_F(DecodeExtraTest, BlocksComeWithSharingAndGoWithItWithoutALostToken) {
  StartOwn(0, Spec(1, 12, 20));
  Share(12);
  EXPECT_EQ(Blocks().total, 22);
  for (uint64_t serial = 2; serial <= 4; ++serial) StartOwn(0, Spec(serial, 12, 12));
  for (int steps = 0; steps < 4; ++steps) Step();
  EXPECT_EQ(Look(0).running, 4);
  EXPECT_GT(Blocks().held, 10) << "more than it has alone";
  Leave(0);
  EXPECT_EQ(Blocks().total, Blocks().held + Blocks().free);
  Step();
  ASSERT_TRUE(Asked<LeaveShared>(0));
  EXPECT_FALSE(Moves(0).empty());
  for (const BlockMove& move : Moves(0)) {
    EXPECT_GE(move.from.value, kFirstExtra);
    EXPECT_LT(move.to.value, 10);
  }
  EXPECT_GE(Look(0).preempted, 1) << "not all have room";
  EXPECT_EQ(Blocks().total, 10);
  Answer(0);
  Leave(1);
  Answer(1);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
  for (uint64_t serial = 2; serial <= 4; ++serial) {
    EXPECT_EQ(At(0).tokens[serial], Expected(serial, 12));
  }
  ExpectAllFree();
}

TEST_F(DecodeExtraTest, StepsGoOnWhileKvComesIntoBlocksThatGo) {
  Share(8);
  StartOwn(0, Spec(1, 20, 12));
  OpenOwn(0, Spec(2, 24, 12));
  ASSERT_EQ(StateOf(2), "granted");
  ASSERT_GE(At(0).opens.back().reply.blocks.back().value, kFirstExtra);
  Leave(0);
  Step();
  Step();
  EXPECT_FALSE(Asked<LeaveShared>(0)) << "KV comes";
  EXPECT_FALSE(At(0).engine.empty());
  CommitOwn(0, Spec(2, 24, 12));
  Step();
  ASSERT_TRUE(Asked<LeaveShared>(0));
  Answer(0);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 12));
  EXPECT_EQ(At(0).tokens[2], Expected(2, 12));
  EXPECT_EQ(FreeBlocks(0), 10);
}

TEST_F(DecodeExtraTest, KvThatDoesNotComeIsTriedElsewhereAndItsWriterKeepsNobody) {
  late_writers_ = true;
  Share(8);
  StartOwn(0, Spec(1, 20, 12));
  OpenOwn(0, Spec(2, 24, 12));
  Leave(0);
  now_ += kWaitUs;
  Do(0, Tick{});
  EXPECT_EQ(At(0).ended[2].status.code(), absl::StatusCode::kUnavailable);
  Step();
  EXPECT_FALSE(Asked<LeaveShared>(0)) << "its writer may still put into them";
  now_ += kWaitUs;
  Do(0, Tick{});
  Step();
  ASSERT_TRUE(Asked<LeaveShared>(0));
  Answer(0);
  EXPECT_EQ(At(0).told.phase, Phase::kEnded);
  EXPECT_GT(Blocks().quarantined, 0);
  EXPECT_GT(Blocks().total, 10);
  for (const GrantId grant : At(0).closing) Do(0, GrantClosed{grant});
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 12));
  EXPECT_EQ(Blocks(), (BlockCounts{.free = 10, .total = 10}));
}

// Steps go on all the time, and a writer stands still in a handoff: the engine is asked for the
// weights after twice the wait and the step that runs then, at the latest.
TEST_F(DecodeExtraTest, TheTimeToLeaveIsBounded) {
  constexpr TimeUs kStepUs = 400 * kMillisecondUs;
  late_writers_ = true;
  Share(8);
  StartOwn(0, Spec(1, 12, 20));
  OpenOwn(0, Spec(2, 24, 12));
  const TimeUs asked_us = now_;
  Leave(0);
  while (!Asked<LeaveShared>(0)) {
    ASSERT_LT(now_, asked_us + 2 * kWaitUs + kStepUs);
    now_ += kStepUs;
    Do(0, Tick{});
    Step();
  }
  EXPECT_GT(now_, asked_us + kWaitUs) << "there was something to wait for";
  Answer(0);
  EXPECT_EQ(At(0).told.phase, Phase::kEnded);
  for (const GrantId grant : At(0).closing) Do(0, GrantClosed{grant});
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
}

TEST_F(DecodeExtraTest, WhoIsToldToLeaveWhileItEntersGetsNoBlocks) {
  PrepareShared(0);
  Answer(0);
  Do(0, CommitFormation{7});
  ASSERT_TRUE(Asked<EnterShared>(0));
  Leave(0);
  Answer(0, absl::OkStatus(), {{kFirstExtra}, 8});
  EXPECT_EQ(Blocks().total, 10);
  ASSERT_TRUE(Asked<LeaveShared>(0));
  EXPECT_TRUE(Moves(0).empty());
}

TEST_F(DecodeExtraTest, ASequenceThatFitsOnlyWithThemDoesNotEnter) {
  Share(20);
  OpenOwn(0, Spec(1, 40, 10));
  EXPECT_EQ(At(0).opens.back().reply.status.code(), absl::StatusCode::kInvalidArgument);
}

// 200 times in and out, while KV comes, is given up, and sequences run and end. After each event
// all blocks are accounted for (Do).
TEST_F(DecodeExtraTest, InAndOutNoTokenIsLostAndNoBlock) {
  std::mt19937_64 random(5);
  uint64_t serial = 0, epoch = 7;
  int64_t ended = 0, moved = 0, preempted = 0;
  std::vector<SpecPtr> coming, all;
  const auto act = [&] {
    const auto what = random() % 4;
    if (what == 0) {
      const SpecPtr spec = Spec(++serial, 1 + static_cast<int64_t>(random() % 20),
                                1 + static_cast<int64_t>(random() % 18));
      OpenOwn(0, spec);
      if (StateOf(serial) != "granted") return;
      for (const BlockId block : At(0).opens.back().reply.blocks) {
        ASSERT_TRUE(block.value < 10 || At(0).told.phase == Phase::kBound) << "it goes";
      }
      coming.push_back(spec);
    } else if (what == 1 && !coming.empty()) {
      const size_t pick = random() % coming.size();
      const SpecPtr spec = coming[pick];
      coming.erase(coming.begin() + static_cast<std::ptrdiff_t>(pick));
      if (StateOf(spec->id.serial) != "granted") return;
      if (random() % 4 == 0) {  // the router is gone
        Attach(spec->id.serial);
        return Do(0, CancelCalled{{spec->id, kEpoch}});
      }
      CommitOwn(0, spec);
      all.push_back(spec);
    } else {
      Step();
    }
  };
  for (int round = 0; round < 200; ++round) {
    PrepareShared(0, epoch);
    Answer(0);
    Do(0, CommitFormation{epoch});
    while (!Asked<EnterShared>(0)) Step();
    Answer(0, absl::OkStatus(), {{kFirstExtra}, 1 + static_cast<int64_t>(random() % 20)});
    for (auto acts = random() % 12; acts > 0; --acts) act();
    Do(0, EndFormation{epoch++, Switch::kHard, absl::CancelledError("online")});
    while (!Asked<LeaveShared>(0)) {
      act();
      if (random() % 16 == 0) now_ += kWaitUs;
    }
    moved += static_cast<int64_t>(Moves(0).size());
    for (const BlockMove& move : Moves(0)) ASSERT_LT(move.to.value, 10);
    Answer(0);
    ASSERT_EQ(Blocks().total, 10);
    for (auto acts = random() % 4; acts > 0; --acts) act();
  }
  preempted = static_cast<int64_t>(Look(0).preemptions);
  for (const SpecPtr& spec : coming) {
    if (StateOf(spec->id.serial) != "granted") continue;
    CommitOwn(0, spec);
    all.push_back(spec);
  }
  RunAll();
  for (const SpecPtr& spec : all) {
    ++ended;
    ASSERT_EQ(At(0).tokens[spec->id.serial], Expected(spec->id.serial, spec->max_tokens));
  }
  EXPECT_EQ(FreeBlocks(0), 10);
  EXPECT_GT(ended, 100);
  EXPECT_GT(moved, 50);
  EXPECT_GT(preempted, 10);
}

}  // namespace
}  // namespace skein::scheduler
