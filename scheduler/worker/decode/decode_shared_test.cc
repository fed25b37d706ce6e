// Two decode instances that share their weights: each runs its own batch, steps wait only while the
// engine changes, and no token is lost or changed.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "scheduler/worker/testing/core_testing.h"
#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;
using Phase = FormationTold::Phase;

class DecodeSharedTest : public testing::DecodePairTest {
 protected:
  void PrepareShared(int rank, uint64_t epoch = 7) {
    Do(rank, PrepareFormation{.epoch = epoch,
                              .generation = 1,
                              .size = 2,
                              .keep_us = kSecondUs,
                              .shared = SharedMode::kWas});
  }
  // Both share under epoch 7, in WaS.
  void Share() {
    for (int rank = 0; rank < 2; ++rank) {
      PrepareShared(rank);
      Answer(rank);
      EXPECT_EQ(At(rank).told.phase, Phase::kPrepared);
    }
    for (int rank = 0; rank < 2; ++rank) Do(rank, CommitFormation{7});
    Step();  // what runs ends
    for (int rank = 0; rank < 2; ++rank) {
      Answer(rank);
      EXPECT_EQ(At(rank).told.phase, Phase::kBound);
    }
  }
  template <class Call>
  bool Asked(int rank) {
    return !At(rank).sharing.empty() && std::holds_alternative<Call>(At(rank).sharing.front());
  }
  void Answer(int rank, absl::Status status = absl::OkStatus()) {
    ASSERT_FALSE(At(rank).sharing.empty());
    const uint64_t call =
        std::visit([](const auto& one) { return one.call; }, At(rank).sharing.front());
    At(rank).sharing.pop_front();
    Do(rank, SharingDone{call, std::move(status)});
  }
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
  EXPECT_TRUE(Asked<SetMode>(1)) << "a rank without work waits for nobody";
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

}  // namespace
}  // namespace skein::scheduler
