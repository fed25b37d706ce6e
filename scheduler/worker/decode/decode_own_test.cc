// How the own sequences of two instances fare when they are bound (OwnSequences): they end first,
// go on in the group, or pause with their KV in place. Every one gets its tokens.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class DecodeOwnTest : public testing::DecodePairTest {
 protected:
  absl::Status OpenAnswer(int rank) {
    return At(rank).opens.empty() ? absl::UnknownError("") : At(rank).opens.back().reply.status;
  }
};

// ---- they end first ----

TEST_F(DecodeOwnTest, SequentialIsPreparedWhenOwnSequencesHaveEnded) {
  StartOwn(0, Spec(1, 4, 6));
  const SpecPtr coming = Spec(2, 4, 3);
  OpenOwn(1, coming);
  Prepare(OwnSequences::kSequential);
  EXPECT_FALSE(Prepared(0) || Prepared(1));
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_TRUE(Prepared(0));
  EXPECT_FALSE(Prepared(1)) << "KV is on its way to it";
  CommitOwn(1, coming);
  RunAll();
  EXPECT_EQ(At(1).tokens[2], Expected(2, 3)) << "what had blocks is computed";
  EXPECT_TRUE(Prepared(1));
  EXPECT_GT(At(1).told.drain_us, 0);
  Commit();
  Announce(Spec(3, 12, 4), formation_);
  Attach(3);
  RunAll();
  EXPECT_EQ(At(0).tokens[3], Expected(3, 4));
  ExpectAllFree();
}

// As a full instance does: the request may go elsewhere.
TEST_F(DecodeOwnTest, WhileOwnSequencesEndNoneIsTaken) {
  for (const bool prepared : {false, true}) {
    SCOPED_TRACE(prepared);
    const uint64_t serial = prepared ? 11 : 1;
    if (!prepared) StartOwn(0, Spec(serial, 4, 6));
    Prepare(OwnSequences::kSequential);
    EXPECT_EQ(Prepared(0), prepared);
    OpenOwn(0, Spec(serial + 1, 4, 3));
    EXPECT_EQ(OpenAnswer(0), absl::ResourceExhaustedError(
                                 "the instance is being bound: its own requests end first"));
    EXPECT_EQ(StateOf(serial + 1), "announced");
    Do(0, EndFormation{formation_, Switch::kHard, absl::CancelledError("aborted")});
    OpenOwn(0, Spec(serial + 2, 4, 3));
    EXPECT_EQ(StateOf(serial + 2), "granted") << "the bind is over";
    Do(0, CancelCalled{{{7, serial + 2}, kEpoch, "not wanted"}});
    RunAll();
  }
}

TEST_F(DecodeOwnTest, OwnSequencesThatDoNotEndInTimeKeepTheirInstance) {
  StartOwn(0, Spec(1, 4, 30));
  Prepare(OwnSequences::kSequential, /*keep_us=*/50 * kMillisecondUs);
  now_ += 60 * kMillisecondUs;
  Pass();
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
  EXPECT_EQ(At(0).told.why, absl::DeadlineExceededError("its own sequences did not end in time"));
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 30));
}

// The orchestrator was told of no such epoch, so it ends it at the others.
TEST_F(DecodeOwnTest, AStreamThatBeginsMeanwhileEndsIt) {
  StartOwn(0, Spec(1, 4, 6));
  Prepare(OwnSequences::kSequential);
  Do(0, RegisterReplied{{absl::OkStatus(), {3}, 1'000'000}});
  EXPECT_EQ(At(0).told.epoch, formation_);
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
  OpenOwn(0, Spec(2, 4, 3));
  EXPECT_EQ(StateOf(2), "granted");
}

// ---- they go on in the group ----

TEST_F(DecodeOwnTest, SoftPreemptMovesWhatTheLeadRunsIntoTheGroup) {
  StartOwn(0, Spec(1, 4, 20));
  StartOwn(1, Spec(2, 4, 8));
  Prepare(OwnSequences::kSoftPreempt);
  EXPECT_TRUE(Prepared(0));
  EXPECT_FALSE(Prepared(1));
  StartOwn(0, Spec(3, 6, 20));
  EXPECT_EQ(StateOf(3), "running") << "the lead takes requests meanwhile";
  OpenOwn(1, Spec(4, 4, 3));
  EXPECT_EQ(StateOf(4, 1), "announced") << "the other one does not, while its own run";
  while (!Prepared(1)) ASSERT_TRUE(Step());
  EXPECT_EQ(At(1).tokens[2], Expected(2, 8));
  const int64_t own_steps = At(0).own_steps;
  EXPECT_GT(own_steps, 3);
  Commit();
  EXPECT_EQ(StateOf(1), "bound");
  EXPECT_EQ(StateOf(3), "bound");
  EXPECT_LE(At(0).own_steps, own_steps + 1) << "only the one that ran";
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 20));
  EXPECT_EQ(At(0).tokens[3], Expected(3, 20));
  EXPECT_LE(At(0).own_steps, own_steps + 1);
  EXPECT_EQ(At(0).group_steps, At(1).group_steps);
  Release(Switch::kSequential);
  RunAll();
  ExpectAllFree();
}

// What comes afterwards for the lead alone does not lose its KV.
TEST_F(DecodeOwnTest, SoftPreemptMovesOnce) {
  const SpecPtr coming = Spec(1, 4, 6);
  OpenOwn(0, coming);
  Bind(OwnSequences::kSoftPreempt);
  CommitOwn(0, coming);
  EXPECT_EQ(StateOf(1), "running");
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_EQ(Look(0).preemptions, 0u);
}

// Member 1 has nothing to run: it begins requests while it waits for the bind.
class DecodeGivenTest : public DecodeOwnTest {
 protected:
  // Request 2 there, which has some tokens.
  void BeginAtMember(int64_t tokens, std::vector<int32_t> stop_token_ids = {}) {
    Prepare(OwnSequences::kSoftPreempt);
    EXPECT_TRUE(Prepared(0) && Prepared(1));
    auto spec = Spec(2, 4, tokens);
    spec->stop_token_ids = std::move(stop_token_ids);
    StartOwn(1, spec);
    EXPECT_EQ(StateOf(2, 1), "running");
    for (int steps = 0; steps < 3; ++steps) Step();
    EXPECT_GE(At(1).tokens[2].size(), 3u);
  }
  void ExpectEndOfRelease() {
    Release(Switch::kSequential);
    RunAll();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(At(rank).told.phase, FormationTold::Phase::kEnded);
    }
    ExpectAllFree();
  }
};

TEST_F(DecodeGivenTest, WhatBeganAtAnIdleMemberGoesOnInTheGroup) {
  StartOwn(0, Spec(1, 4, 30));
  BeginAtMember(20);
  Commit();
  EXPECT_EQ(StateOf(2, 1), "bound");
  EXPECT_EQ(StateOf(2, 0), "") << "its stream stays where it began";
  EXPECT_EQ(Look(1).preemptions, 1u) << "its KV is computed anew";
  const int64_t own_steps = At(1).own_steps;
  const size_t before = At(1).tokens[2].size();
  RunAll();
  EXPECT_EQ(At(1).own_steps, own_steps);
  EXPECT_GE(At(1).group_steps, 20 - static_cast<int64_t>(before));
  EXPECT_EQ(At(1).group_steps, At(0).group_steps);
  EXPECT_EQ(At(0).tokens[1], Expected(1, 30));
  EXPECT_EQ(At(1).tokens[2], Expected(2, 20));
  EXPECT_TRUE(At(0).tokens[2].empty());
  EXPECT_EQ(At(1).streams_ended.at(2).reason, FinishReason::kLength);
  EXPECT_EQ(At(1).ended.at(2).status, absl::OkStatus());
  ExpectEndOfRelease();
}

// The member alone knows its stop tokens' effect, its cancels and its routers.
TEST_F(DecodeGivenTest, TheMemberDecidesWhenItEnds) {
  BeginAtMember(30, {TokenOf({7, 2}, 9)});
  const SpecPtr cancelled = Spec(3, 4, 30);
  StartOwn(1, cancelled);
  Commit();
  EXPECT_EQ(StateOf(3, 1), "bound");
  Step();
  Do(1, CancelCalled{{cancelled->id, kEpoch, "not wanted"}});
  EXPECT_EQ(At(1).streams_ended.at(3).reason, FinishReason::kCancelled);
  RunAll();
  EXPECT_EQ(At(1).tokens[2], Expected(2, 9));
  EXPECT_EQ(At(1).streams_ended.at(2).reason, FinishReason::kStop);
  EXPECT_EQ(Look(0).group_blocks, 0);
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kBound);
  ExpectEndOfRelease();
}

TEST_F(DecodeGivenTest, AHardReleaseGivesItBackToTheMember) {
  BeginAtMember(30);
  Commit();
  for (int steps = 0; steps < 4; ++steps) Step();
  Release(Switch::kHard);
  RunAll();
  EXPECT_EQ(At(1).told.phase, FormationTold::Phase::kEnded);
  EXPECT_GT(Look(1).recomputed_tokens, 0u);
  EXPECT_EQ(Look(0).recomputed_tokens, 0u);
  EXPECT_EQ(At(1).tokens[2], Expected(2, 30));
  ExpectAllFree();
}

TEST_F(DecodeGivenTest, TheDeathOfTheLeadGivesItBackToo) {
  BeginAtMember(30);
  Commit();
  for (int steps = 0; steps < 4; ++steps) Step();
  Kill(0);
  RunAll();
  EXPECT_EQ(At(1).tokens[2], Expected(2, 30));
  EXPECT_EQ(FreeBlocks(1), 10);
}

// A request is not at two instances, but for moments: then the group ends, and each goes on alone.
TEST_F(DecodeGivenTest, WhatTheLeadRunsAlreadyEndsTheGroup) {
  BeginAtMember(20);
  StartOwn(0, Spec(2, 4, 20));
  Do(0, CommitFormation{formation_});
  RunAll();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(At(rank).told.phase, FormationTold::Phase::kEnded);
    EXPECT_EQ(At(rank).tokens[2], Expected(2, 20)) << "rank " << rank;
  }
  ExpectAllFree();
}

// ---- they pause ----

class DecodePauseTest : public DecodeOwnTest {
 protected:
  // A request at each rank, and one of the group.
  void StartAll(int64_t group_tokens) {
    StartOwn(0, Spec(1, 4, 12));
    StartOwn(1, Spec(2, 4, 12));
    Step();
    Bind(OwnSequences::kHardPreempt);
    Announce(Spec(3, 8, group_tokens), formation_);
    Attach(3);
  }
  size_t OwnTokens() { return At(0).tokens[1].size() + At(1).tokens[2].size(); }
  void ExpectAllAnswers(int64_t group_tokens) {
    RunAll();
    EXPECT_EQ(At(0).tokens[1], Expected(1, 12));
    EXPECT_EQ(At(1).tokens[2], Expected(2, 12));
    EXPECT_EQ(At(0).tokens[3], Expected(3, group_tokens));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(Look(rank).preemptions, 0u) << "their KV stays";
      EXPECT_EQ(Look(rank).recomputed_tokens, 0u);
    }
    ExpectAllFree();
  }
};

TEST_F(DecodePauseTest, OwnSequencesPauseWhileTheGroupRunsAndThenGoOn) {
  StartAll(20);
  while (At(0).tokens[3].empty()) ASSERT_TRUE(Step());  // own ones that were under way
  const size_t before = OwnTokens();
  while (At(0).tokens[3].size() < 20) {
    ASSERT_TRUE(Step());
    EXPECT_EQ(OwnTokens(), before);
  }
  Step();
  Step();
  EXPECT_GT(OwnTokens(), before) << "the group has nothing to run";
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kBound);
  ExpectAllAnswers(20);
}

TEST_F(DecodePauseTest, AReleaseEndsThePause) {
  StartAll(40);
  Step();
  Step();
  const size_t before = OwnTokens();
  Release(Switch::kSequential);
  RunAll();
  EXPECT_LT(At(0).tokens[3].size(), 41u);
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
  EXPECT_GT(OwnTokens(), before);
  ExpectAllAnswers(40);
}

TEST_F(DecodePauseTest, APauseHasALongestTime) {
  StartAll(40);
  Step();
  Step();
  const size_t before = OwnTokens();
  now_ += 60 * kSecondUs;  // GroupConfig::own_pause_us
  for (int steps = 0; steps < 6; ++steps) Step();
  EXPECT_GT(OwnTokens(), before);
  EXPECT_LT(At(0).tokens[3].size(), 40u) << "both take turns";
  ExpectAllAnswers(40);
}

TEST_F(DecodePauseTest, TheOrderSaysHowLongThatIs) {
  own_pause_us_ = kSecondUs;
  StartAll(40);
  Step();
  Step();
  const size_t before = OwnTokens();
  now_ += kSecondUs;
  for (int steps = 0; steps < 6; ++steps) Step();
  EXPECT_GT(OwnTokens(), before);
  ExpectAllAnswers(40);
}

// Paused sequences hold 9 of 10 blocks at rank 1: the group's request can only begin when they have
// ended, so they run.
TEST_F(DecodePauseTest, WhatTheGroupWaitsForDoesNotPause) {
  StartOwn(1, Spec(2, 20, 12));
  StartOwn(1, Spec(4, 4, 12));
  Bind(OwnSequences::kHardPreempt);
  Announce(Spec(3, 60, 10), formation_);
  Attach(3);
  RunAll();
  EXPECT_EQ(At(1).tokens[2], Expected(2, 12));
  EXPECT_EQ(At(1).tokens[4], Expected(4, 12));
  EXPECT_EQ(At(0).tokens[3], Expected(3, 10));
  ExpectAllFree();
}

}  // namespace
}  // namespace skein::scheduler
