// The gaps that streams see when two instances are bound and released (StreamGaps): one a stream
// and switch, exactly the time between the tokens around it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/worker/decode/stream_gaps.h"
#include "scheduler/worker/testing/core_testing.h"
#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;
using Gaps = std::vector<StreamGap>;

class DecodeGapsTest : public testing::DecodePairTest {
 protected:
  size_t TokensOf(uint64_t serial, int rank) { return At(rank).tokens[serial].size(); }
  // As the fixture's, but never at the time of the switch before.
  bool Step() {
    ++now_;
    return DecodePairTest::Step();
  }
  void RunAll() {
    ++now_;
    DecodePairTest::RunAll();
  }
  // From the last token of a stream up to that time to the next one. A token that comes with the
  // end of the last step before a switch has the time of the switch.
  TimeUs GapAt(TimeUs switched_us, uint64_t serial, int rank) {
    const std::vector<TimeUs>& times = At(rank).token_times[serial];
    const auto next = std::upper_bound(times.begin(), times.end(), switched_us);
    EXPECT_NE(next, times.begin()) << "it had no token before";
    EXPECT_NE(next, times.end()) << "it has no token after it";
    return next == times.begin() || next == times.end() ? -1 : *next - *(next - 1);
  }
  bool Released() {
    return At(0).told.phase == FormationTold::Phase::kEnded &&
           At(1).told.phase == FormationTold::Phase::kEnded;
  }
};

TEST_F(DecodeGapsTest, ABindAndAReleaseAreOneGapEachOfAStreamThatRuns) {
  StartOwn(0, Spec(1, 4, 20));
  StartOwn(1, Spec(2, 4, 20));
  Step();
  Bind();
  const TimeUs bound_us[] = {At(0).told_us, At(1).told_us};
  EXPECT_EQ(At(0).gaps, Gaps{}) << "no token has come since";
  const size_t tokens = TokensOf(1, 0);
  for (int steps = 0; steps < 4; ++steps) Step();
  EXPECT_GT(TokensOf(1, 0), tokens);
  Release(Switch::kHard);
  while (!Released()) ASSERT_TRUE(Step());
  const TimeUs released_us[] = {At(0).told_us, At(1).told_us};
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
  EXPECT_EQ(At(1).tokens[2], Expected(2, 20));
  for (int rank = 0; rank < 2; ++rank) {
    const auto serial = static_cast<uint64_t>(rank) + 1;
    EXPECT_EQ(At(rank).gaps,
              (Gaps{{true, OwnSequences::kShare, GapAt(bound_us[rank], serial, rank)},
                    {false, OwnSequences::kShare, GapAt(released_us[rank], serial, rank)}}))
        << "rank " << rank;
  }
}

// The lead has its tokens. They go on when it has been computed anew.
TEST_F(DecodeGapsTest, AReleaseIsAGapOfWhatTheGroupRan) {
  Bind();
  Announce(Spec(3, 12, 20), formation_);
  Attach(3);
  while (TokensOf(3, 0) < 5) ASSERT_TRUE(Step());
  EXPECT_EQ(At(0).gaps, Gaps{}) << "it had no token before the bind";
  Release(Switch::kHard);
  while (!Released()) ASSERT_TRUE(Step());
  const TimeUs released_us = At(0).told_us;
  RunAll();
  EXPECT_EQ(At(0).tokens[3], Expected(3, 20));
  EXPECT_EQ(At(0).gaps, (Gaps{{false, OwnSequences::kShare, GapAt(released_us, 3, 0)}}));
  EXPECT_EQ(At(1).gaps, Gaps{}) << "a member has no stream of it";
}

TEST_F(DecodeGapsTest, ASoftBindIsAGapOfWhatItMoves) {
  StartOwn(0, Spec(1, 4, 20));
  Step();
  Bind(OwnSequences::kSoftPreempt);
  EXPECT_EQ(StateOf(1), "bound");
  const TimeUs bound_us = At(0).told_us;
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
  EXPECT_EQ(At(0).gaps, (Gaps{{true, OwnSequences::kSoftPreempt, GapAt(bound_us, 1, 0)}}));
}

TEST_F(DecodeGapsTest, APauseIsOneGap) {
  StartOwn(1, Spec(2, 4, 20));
  Step();
  Bind(OwnSequences::kHardPreempt);
  Announce(Spec(3, 8, 40), formation_);
  Attach(3);
  while (TokensOf(3, 0) == 0) ASSERT_TRUE(Step());  // own steps that were under way
  const size_t paused = TokensOf(2, 1);
  const size_t gaps = At(1).gaps.size();
  const TimeUs paused_us = now_;
  for (int steps = 0; steps < 5; ++steps) Step();
  EXPECT_EQ(TokensOf(2, 1), paused);
  const TimeUs pause_us = now_ - paused_us;
  Release(Switch::kHard);
  RunAll();
  EXPECT_EQ(At(1).tokens[2], Expected(2, 20));
  ASSERT_EQ(At(1).gaps.size(), gaps + 1);
  const StreamGap& gap = At(1).gaps.back();
  EXPECT_EQ(gap.own, OwnSequences::kHardPreempt);
  EXPECT_EQ(gap.gap_us, GapAt(paused_us, 2, 1));
  EXPECT_GE(gap.gap_us, pause_us);
}

TEST_F(DecodeGapsTest, AStreamWithoutATokenBeforeOrAfterHasNone) {
  const SpecPtr coming = Spec(1, 4, 6);
  OpenOwn(0, coming);  // its KV comes when the instance is bound
  StartOwn(1, Spec(2, 4, 30));
  Step();
  Bind(OwnSequences::kHardPreempt);
  Announce(Spec(3, 8, 10), formation_);
  Attach(3);
  CommitOwn(0, coming);
  Do(1, CancelCalled{{{7, 2}, kEpoch, "not wanted"}});
  Release(Switch::kHard);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_EQ(At(1).gaps, Gaps{}) << "it was cancelled before its next token";
  for (const StreamGap& gap : At(0).gaps) EXPECT_FALSE(gap.bind) << "its first token came later";
}

// The lead binds, and the member dies before the first step: this instance has worked alone
// throughout.
TEST_F(DecodeGapsTest, AFormationThatEndsBeforeItsFirstStepIsNoSwitch) {
  StartOwn(0, Spec(1, 4, 8));
  StartOwn(1, Spec(2, 4, 8));
  Prepare(OwnSequences::kShare);
  Do(0, CommitFormation{formation_});
  ASSERT_EQ(At(0).told.phase, FormationTold::Phase::kPrepared) << "an own step runs";
  Kill(1);
  RunAll();
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
  EXPECT_EQ(At(0).tokens[1], Expected(1, 8));
  EXPECT_EQ(At(0).gaps, Gaps{});
}

}  // namespace
}  // namespace skein::scheduler
