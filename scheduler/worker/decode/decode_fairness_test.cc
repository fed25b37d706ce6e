// Own sequences of a rank and those of its bound group: neither keeps the other from running, for
// ever, by always being there first when blocks come free.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class DecodeFairnessTest : public testing::DecodePairTest {
 protected:
  DecodeFairnessTest() : DecodePairTest(/*max_requests=*/6) {}

  static constexpr uint64_t kFirst = 100;  // serial of those that keep coming
  static constexpr int kStepsMax = 3'000;

  bool Ended(uint64_t serial, int rank) { return At(rank).ended.contains(serial); }
  // As many as the rank lets in, one after the other.
  void KeepOwnComing(int rank, int64_t prompt_tokens, int64_t max_tokens) {
    StartOwn(rank, Spec(next_, prompt_tokens, max_tokens));
    came_ += StateOf(next_, rank) == "running";
    if (StateOf(next_, rank) == "announced") Do(rank, WithdrawCalled{{{7, next_}, kEpoch}});
    ++next_;
  }
  void KeepGroupComing(int64_t prompt_tokens, int64_t max_tokens) {
    if (At(0).core->Snapshot(now_).bound >= 4) return;
    Announce(Spec(next_, prompt_tokens, max_tokens), formation_);
    Attach(next_++);
    ++came_;
  }

  uint64_t next_ = kFirst;
  int64_t came_ = 0;
};

// The request needs nearly all blocks of each rank; at rank 1 some are always held.
TEST_F(DecodeFairnessTest, OwnSequencesThatKeepComingLetTheGroupIn) {
  for (const int64_t own_tokens : {2, 5, 11, 19}) {
    SCOPED_TRACE(own_tokens);
    if (formation_ == 0) Bind();
    for (int steps = 0; steps < 20; ++steps) {
      KeepOwnComing(1, 4, own_tokens);
      Step();
    }
    const uint64_t serial = static_cast<uint64_t>(own_tokens);
    Announce(Spec(serial, 50, 20), formation_);
    Attach(serial);
    const int64_t before = came_;
    for (int steps = 0; steps < kStepsMax && !Ended(serial, 0); ++steps) {
      KeepOwnComing(1, 4, own_tokens);
      Step();
    }
    ASSERT_TRUE(Ended(serial, 0)) << came_ - before << " came, and kept it waiting";
    EXPECT_EQ(At(0).tokens[serial].size(), 20u);
    RunAll();
    EXPECT_EQ(At(1).core->Snapshot(now_).blocks.free, 10);
  }
  EXPECT_GT(came_, 20);
}

// It was preempted for one of a higher priority. There is always somebody of the group who needs
// fewer blocks.
TEST_F(DecodeFairnessTest, RequestsOfTheGroupThatKeepComingLetOwnOnesResume) {
  StartOwn(1, Spec(2, 4, 34));
  for (int steps = 0; steps < 22; ++steps) Step();  // it has 7 blocks
  auto first = Spec(1, 3, 16);
  first->priority = 1;
  StartOwn(1, first);
  for (int steps = 0; steps < 60 && StateOf(2, 1) != "preempted"; ++steps) Step();
  ASSERT_EQ(StateOf(2, 1), "preempted");
  Bind();
  for (int steps = 0; steps < kStepsMax && !Ended(2, 1); ++steps) {
    KeepGroupComing(8, 8);
    Step();
  }
  ASSERT_TRUE(Ended(2, 1)) << came_ << " came, and kept it waiting";
  EXPECT_EQ(At(1).tokens[2].size(), 34u);
  EXPECT_GT(came_, 0);
}

// What the group wanted is free for own ones again when it wants nothing more; also where no step
// would run for another reason.
TEST_F(DecodeFairnessTest, NothingIsKeptForAGroupThatWantsNothing) {
  Bind();
  OpenOwn(1, Spec(1, 14, 4));
  Announce(Spec(2, 60, 18), formation_);
  Pass();
  OpenOwn(1, Spec(3, 4, 4));
  EXPECT_EQ(StateOf(3, 1), "announced");  // refused
  Do(0, CancelCalled{{{7, 2}, kEpoch, "not wanted"}});
  Pass();
  OpenOwn(1, Spec(4, 4, 4));
  EXPECT_EQ(StateOf(4, 1), "granted");
}

}  // namespace
}  // namespace skein::scheduler
