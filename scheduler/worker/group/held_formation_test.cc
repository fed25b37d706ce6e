#include "scheduler/worker/group/held_formation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

using Phase = FormationTold::Phase;

class HeldFormationTest : public ::testing::Test {
 protected:
  void Prepare(uint64_t epoch, OwnSequences own = OwnSequences::kShare) {
    held_.Prepare({.epoch = epoch, .generation = 3, .size = 2, .keep_us = 100, .own = own}, now_);
  }
  void PrepareAndOpen(uint64_t epoch, int rank, OwnSequences own = OwnSequences::kShare) {
    Prepare(epoch, own);
    held_.FeedOpened(epoch, rank, now_);
  }
  template <class Effect>
  std::vector<Effect> Took() {
    std::vector<Effect> taken;
    for (const BoundEffect& effect : effects_) {
      if (const auto* one = std::get_if<Effect>(&effect)) taken.push_back(*one);
    }
    return taken;
  }
  // The last one that was told.
  FormationTold Told() {
    const std::vector<TellFormation> told = Took<TellFormation>();
    return told.empty() ? FormationTold{} : told.back().told;
  }

  TimeUs now_ = 1'000;
  std::vector<BoundEffect> effects_;
  HeldFormation held_{[this](BoundEffect effect) { effects_.push_back(std::move(effect)); }};
};

TEST_F(HeldFormationTest, AFormationIsPreparedBoundAndEnded) {
  Prepare(5);
  ASSERT_EQ(Took<OpenFeed>().size(), 1u);
  EXPECT_EQ(Took<OpenFeed>()[0].generation, 3u);
  EXPECT_FALSE(held_.HasFeed(5));
  held_.FeedOpened(5, 0, now_);
  EXPECT_TRUE(held_.HasFeed(5) && held_.may_bind() && held_.leads());
  EXPECT_EQ(Told().phase, Phase::kPrepared);
  held_.Bind(now_ += 10);
  held_.TellBound(/*entered_us=*/now_ + 3, now_ + 7);
  EXPECT_EQ(Told().phase, Phase::kBound);
  EXPECT_EQ(Told().cut_over_us, 7);
  EXPECT_EQ(Told().drain_us, 4);
  held_.Ended(absl::CancelledError("released"), 9);
  EXPECT_EQ(Told().phase, Phase::kEnded);
  EXPECT_EQ(Told().drain_us, 9);
  EXPECT_EQ(held_.told().why, absl::CancelledError("released"));
  EXPECT_FALSE(held_.holds_any());
  EXPECT_EQ(held_.NextTick(), kNever);
}

TEST_F(HeldFormationTest, WhatCannotBePreparedIsRefusedByName) {
  PrepareAndOpen(5, 0);
  Prepare(5);
  EXPECT_EQ(Told().why, absl::FailedPreconditionError("epoch: 5 is not above 5"));
  held_.Prepare({.epoch = 6, .first = 1, .size = 2}, now_);
  EXPECT_EQ(Told().why,
            absl::InvalidArgumentError("first, size: 1, 2 are no aligned power of two"));
  for (const int32_t tp : {0, 3, 4, 8}) {
    held_.Prepare({.epoch = 6, .size = 4, .shift = ShiftRule{.tokens = 0, .tp = tp}}, now_);
    EXPECT_EQ(Told().why, absl::InvalidArgumentError(absl::StrCat(
                              "shift.tp: ", tp, " is not a power of two below the size 4")));
  }
  EXPECT_TRUE(held_.may_bind()) << "it is held all the same";
  held_.Bind(now_);
  Prepare(7);
  EXPECT_EQ(Told().epoch, 7u);
  EXPECT_EQ(Told().why, absl::FailedPreconditionError("this instance is bound under epoch 5"));
  EXPECT_TRUE(held_.bound());
}

TEST_F(HeldFormationTest, WhereOwnSequencesEndFirstItIsPreparedWhenTheyHave) {
  for (const bool leads : {true, false}) {
    SCOPED_TRACE(leads);
    const uint64_t epoch = leads ? 5 : 6;
    EXPECT_TRUE(held_.TakesOwn());
    PrepareAndOpen(epoch, leads ? 0 : 1, OwnSequences::kSequential);
    EXPECT_TRUE(held_.draining());
    EXPECT_FALSE(held_.TakesOwn());
    held_.OwnEnded(now_ += 20);
    EXPECT_TRUE(held_.may_bind());
    EXPECT_FALSE(held_.TakesOwn()) << "until it is bound or forgotten";
    EXPECT_EQ(Told().phase, Phase::kPrepared);
    EXPECT_EQ(Told().drain_us, 20);
    held_.Forget(absl::CancelledError("not wanted"));
  }
}

TEST_F(HeldFormationTest, WithSoftPreemptTheLeadAndWhoIsIdleTakeOwnSequences) {
  PrepareAndOpen(5, 0, OwnSequences::kSoftPreempt);
  EXPECT_TRUE(held_.may_bind() && held_.TakesOwn());
  PrepareAndOpen(6, 1, OwnSequences::kSoftPreempt);
  EXPECT_TRUE(held_.draining());
  EXPECT_FALSE(held_.TakesOwn());
  held_.OwnEnded(now_ += 20);
  EXPECT_TRUE(held_.may_bind() && held_.TakesOwn()) << "the group will take them";
  EXPECT_EQ(Told().phase, Phase::kPrepared);
}

TEST_F(HeldFormationTest, WhatIsForgottenIsClosedAndTheLeadHearsOfIt) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    effects_.clear();
    PrepareAndOpen(5 + static_cast<uint64_t>(rank), rank);
    held_.Forget(absl::CancelledError("aborted"));
    EXPECT_EQ(Took<SendOnFeed>().size(), rank == 0 ? 0u : 1u) << "it may have committed";
    ASSERT_EQ(Took<CloseFeed>().size(), 1u);
    EXPECT_FALSE(Took<CloseFeed>()[0].broken);
    EXPECT_EQ(Told().why, absl::CancelledError("aborted"));
  }
  held_.Forget(absl::CancelledError("nothing is held"));
  EXPECT_EQ(Told().why, absl::CancelledError("aborted"));
}

TEST_F(HeldFormationTest, WhatIsNotBoundInTimeIsForgotten) {
  PrepareAndOpen(5, 0);
  EXPECT_EQ(held_.NextTick(), now_ + 100);
  held_.Tick(now_ + 99);
  EXPECT_TRUE(held_.may_bind());
  held_.Tick(now_ + 100);
  EXPECT_EQ(Told().why, absl::DeadlineExceededError("no step of the epoch came"));
  PrepareAndOpen(6, 0, OwnSequences::kSequential);
  held_.Tick(now_ + 100);
  EXPECT_EQ(Told().why, absl::DeadlineExceededError("its own sequences did not end in time"));
  Prepare(7);
  held_.FeedOpened(7, absl::UnavailableError("no context"), now_);
  EXPECT_EQ(Told().why, absl::UnavailableError("no context"));
  EXPECT_FALSE(held_.holds_any());
}

}  // namespace
}  // namespace skein::scheduler
