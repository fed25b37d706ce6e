// One member of a bound group is short of blocks, because sequences of its own hold them. The lead
// gives up sequences of the group, the member those of its own, each for its own kind only: no step
// of the group runs at one rank alone, no shortage costs a sequence at both, and all of them end.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class DecodeShortTest : public testing::DecodePairTest {
 protected:
  // One step at each rank that runs one. False: none does.
  bool StepAndCheck() {
    const uint64_t own = Look(1).preemptions, group = Look(0).preemptions;
    const bool ran = Step();
    EXPECT_LE(std::abs(At(0).group_steps - At(1).group_steps), 1) << "one has yet to end it";
    EXPECT_TRUE(Look(1).preemptions == own || Look(0).preemptions == group)
        << "both sides gave a sequence up";
    short_steps_ += FreeBlocks(1) == 0;
    return ran;
  }
  void RunAllAndCheck() {
    for (int steps = 0; steps < 2'000 && StepAndCheck(); ++steps) {
    }
    EXPECT_EQ(At(0).group_steps, At(1).group_steps) << "a step ran at one rank alone";
  }
  void ExpectAnswer(int rank, uint64_t serial, int64_t tokens) {
    EXPECT_EQ(At(rank).tokens[serial], Expected(serial, tokens)) << "rank " << rank;
  }

  static constexpr uint64_t kGroup = 1;  // serial of the group's request
  int64_t short_steps_ = 0;              // after which the member had no free block
};

// Alone at its rank, it has nobody to give up and waits. Then the group's only sequence gives its
// blocks up, once, and resumes when the own one has ended.
TEST_F(DecodeShortTest, TheGroupYieldsToAnOwnSequenceThatCannotGoOn) {
  Bind();
  Announce(Spec(kGroup, 8, 40), formation_);
  Attach(kGroup);
  StartOwn(1, Spec(2, 4, 34));  // needs all blocks at its end
  RunAllAndCheck();
  ExpectAnswer(0, kGroup, 40);
  ExpectAnswer(1, 2, 34);
  EXPECT_EQ(Look(0).preemptions, 1u);
  EXPECT_EQ(Look(1).preemptions, 0u);
  ExpectAllFree();
}

// The member chooses the younger one of its own, for its older one. The group waits meanwhile and
// loses nothing.
TEST_F(DecodeShortTest, AMemberGivesUpItsOwnForItsOwn) {
  Bind();
  Announce(Spec(kGroup, 8, 30), formation_);
  Attach(kGroup);
  StartOwn(1, Spec(2, 4, 20));
  StartOwn(1, Spec(3, 4, 20));
  RunAllAndCheck();
  ExpectAnswer(0, kGroup, 30);
  ExpectAnswer(1, 2, 20);
  ExpectAnswer(1, 3, 20);
  EXPECT_EQ(Look(1).preemptions, 1u);
  EXPECT_EQ(Look(0).preemptions, 0u);
  ExpectAllFree();
}

// Whatever their sizes and priorities are, and whichever began first.
TEST_F(DecodeShortTest, EveryShortageOfOneMemberEnds) {
  uint64_t serial = 10, preempted = 0;
  for (int64_t own = 4; own <= 34; own += 10) {
    for (int64_t group = 6; group <= 66; group += 20) {
      for (const int kind : {0, 1, 2, 3}) {
        SCOPED_TRACE(::testing::Message() << own << " own, " << group << " group, kind " << kind);
        if (formation_ == 0) Bind();
        const uint64_t before = Look(0).preemptions + Look(1).preemptions;
        const uint64_t first = serial += 3;
        const auto start_own = [&](uint64_t one, int64_t tokens) {
          auto spec = Spec(one, 4, tokens);
          spec->priority = kind % 2;
          StartOwn(1, spec);
        };
        if (kind < 2) start_own(first + 1, own);
        Announce(Spec(first, 8, group), formation_);
        Attach(first);
        Pass();
        if (kind >= 2) start_own(first + 1, own);
        start_own(first + 2, own / 2 + 1);
        if (StateOf(first + 2, 1) == "announced") Do(1, WithdrawCalled{{{7, first + 2}, kEpoch}});
        const bool two = StateOf(first + 2, 1) != "";
        RunAllAndCheck();
        ExpectAnswer(0, first, group);
        ExpectAnswer(1, first + 1, own);
        if (two) ExpectAnswer(1, first + 2, own / 2 + 1);
        ExpectAllFree();
        preempted += Look(0).preemptions + Look(1).preemptions - before;
      }
    }
  }
  EXPECT_GT(preempted, 20u);
  EXPECT_GT(short_steps_, 50);
}

}  // namespace
}  // namespace skein::scheduler
