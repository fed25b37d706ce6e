// Requests that the bound group computes from their first token on: how they join, what they get,
// and how they end when the group does, or when they cannot join.
#include "scheduler/worker/decode/group_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class GroupRequestsTest : public testing::DecodePairTest {};

// From the first token on, by steps of the group alone; an idle group starts at once.
TEST_F(GroupRequestsTest, TheGroupComputesPromptAndOutput) {
  Bind();
  Announce(Spec(1, 12, 6), formation_);
  EXPECT_EQ(StateOf(1), "bound");
  EXPECT_EQ(At(0).opened, (std::vector<RequestId>{{7, 1}}));
  ASSERT_FALSE(At(0).engine.empty());
  EXPECT_TRUE(At(0).engine.front().group.has_value());
  EXPECT_EQ(At(0).engine.front().sequences.at(0).position, 0);
  Attach(1);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_EQ(At(0).streams_ended[1].reason, FinishReason::kLength);
  EXPECT_TRUE(EndOf(1).ok()) << EndOf(1);
  EXPECT_GT(At(0).group_steps, 0);
  EXPECT_EQ(At(0).group_steps, At(1).group_steps);
  EXPECT_EQ(At(0).own_steps, 0);
  EXPECT_EQ(FreeBlocks(0), 10);
  EXPECT_EQ(FreeBlocks(1), 10);
}

// A router that attached ahead gets its tokens, as those of any other request.
TEST_F(GroupRequestsTest, ARouterMayAttachAhead) {
  Bind();
  Do(0, AttachCalled{{77}, {7, 1}, kEpoch, /*ahead=*/true});
  Announce(Spec(1, 12, 3), formation_);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 3));
}

TEST_F(GroupRequestsTest, AnAnnouncementThatIsRepeatedJoinsOnce) {
  Bind();
  Announce(Spec(1, 12, 3), formation_);
  Announce(Spec(1, 12, 3), formation_);
  Attach(1);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 3));
  EXPECT_EQ(At(0).opened.size(), 1u);
}

// The orchestrator plans those anew that end with UNAVAILABLE.
TEST_F(GroupRequestsTest, AFormationThatIsNotBoundHereIsUnavailable) {
  Announce(Spec(1), 1);  // nothing is bound
  EXPECT_TRUE(absl::IsUnavailable(EndOf(1))) << EndOf(1);
  Bind();
  Announce(Spec(2), formation_ + 1);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(2))) << EndOf(2);
  Announce(Spec(3, 12, 6), formation_);
  Release(Switch::kSequential);  // it waits for the one that runs, and takes no new one
  Announce(Spec(4), formation_);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(4))) << EndOf(4);
  Attach(3);
  RunAll();
  EXPECT_EQ(At(0).tokens[3], Expected(3, 6));
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
}

TEST_F(GroupRequestsTest, AMemberThatDoesNotLeadRefuses) {
  Bind();
  Do(1, AnnounceCalled{{.spec = Spec(1), .epoch = kEpoch, .formation = formation_}, {}});
  EXPECT_TRUE(absl::IsUnavailable(At(1).ended[1].status)) << At(1).ended[1].status;
}

TEST_F(GroupRequestsTest, ADrainingInstanceTakesNone) {
  Bind();
  Do(0, OrderDrain{true});
  Announce(Spec(1), formation_);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(1))) << EndOf(1);
}

// Before anything of it is begun, with what was asked for and the limit.
TEST_F(GroupRequestsTest, WhatTheGroupCannotDoIsRefused) {
  Bind();
  const auto refusal = [&](const SpecPtr& spec, const absl::Status& checked = {}) {
    Announce(spec, formation_, checked);
    EXPECT_EQ(StateOf(spec->id.serial), "");
    return EndOf(spec->id.serial);
  };
  auto scored = Spec(1);
  scored->want_prompt_logprobs = true;
  EXPECT_EQ(refusal(scored), absl::UnimplementedError("prompt_logprobs: a bound group computes "
                                                      "none"));
  EXPECT_TRUE(absl::IsUnimplemented(refusal(Spec(2, 6, 0))));
  EXPECT_EQ(
      refusal(Spec(3, 80, 10)),  // 10 blocks of 8 tokens at each rank
      absl::ResourceExhaustedError("KV blocks: the request needs 12 at each rank, which has 10"));
  EXPECT_EQ(refusal(Spec(4, 91, 10)),
            absl::InvalidArgumentError("prompt + max_tokens: 101 tokens exceed the limit of 100"));
  auto sampled = Spec(5);
  sampled->sampling.assign(FeedOffer::kSamplingMax + 1, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(refusal(sampled)));
  EXPECT_EQ(refusal(Spec(6), absl::InvalidArgumentError("no such token")),
            absl::InvalidArgumentError("no such token"));
  EXPECT_TRUE(At(0).opened.empty());
}

// max_requests is 3: the next one waits, and joins when another has ended.
TEST_F(GroupRequestsTest, MoreThanMayBeHereWait) {
  Bind();
  for (uint64_t serial = 1; serial <= 4; ++serial) {
    Announce(Spec(serial, 6, 3), formation_);
    Attach(serial);
  }
  EXPECT_EQ(StateOf(4), "announced");
  RunAll();
  EXPECT_TRUE(EndOf(4).ok()) << EndOf(4);
  EXPECT_EQ(At(0).opened.size(), 4u);
}

TEST_F(GroupRequestsTest, OneThatWaitsEndsWithItsFormation) {
  Bind();
  for (uint64_t serial = 1; serial <= 4; ++serial) Announce(Spec(serial, 6, 3), formation_);
  Release(Switch::kSequential);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(4))) << EndOf(4);
}

// 44 tokens are more than 10 blocks of 4, and fit 10 of 8.
TEST_F(GroupRequestsTest, OneThatFitsNoInstanceAloneEndsWithItsGroup) {
  Bind();
  Announce(Spec(1, 36, 8), formation_);
  Announce(Spec(2, 6, 8), formation_);
  Attach(1);
  Attach(2);
  for (int steps = 0; steps < 4; ++steps) Step();
  EXPECT_FALSE(At(0).tokens[1].empty());
  Release(Switch::kHard);
  RunAll();
  EXPECT_EQ(EndOf(1), absl::UnavailableError(
                          "the bound group that computed the request has ended (released); prompt "
                          "+ max_tokens: 44 tokens exceed the KV cache of this instance, 40 "
                          "tokens"));
  EXPECT_EQ(At(0).streams_ended[1].status, EndOf(1));
  EXPECT_EQ(At(0).tokens[2], Expected(2, 8));  // the other one goes on alone
  EXPECT_GT(At(0).own_steps, 0);
  EXPECT_EQ(FreeBlocks(0), 10);
}

TEST_F(GroupRequestsTest, AfterADeathTheLeadComputesThemAlone) {
  Bind();
  Announce(Spec(1, 12, 6), formation_);
  Attach(1);
  Kill(1);  // before a step has ended: nothing of the prompt is computed
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_TRUE(EndOf(1).ok()) << EndOf(1);
  EXPECT_EQ(FreeBlocks(0), 10);
}

TEST_F(GroupRequestsTest, ACancelAndAClosedStreamEndThem) {
  Bind();
  for (uint64_t serial = 1; serial <= 3; ++serial) Announce(Spec(serial, 6, 20), formation_);
  Attach(3);
  Do(0, AttachCalled{{77}, {7, 2}, kEpoch});
  Step();
  Do(0, CancelCalled{{{7, 1}, kEpoch, "not wanted"}});
  Do(0, DetachCalled{{77}});
  RunAll();
  EXPECT_TRUE(absl::IsCancelled(EndOf(1)));
  EXPECT_TRUE(absl::IsCancelled(EndOf(2)));
  EXPECT_EQ(At(0).tokens[3], Expected(3, 20));
  EXPECT_EQ(FreeBlocks(0), 10);
  EXPECT_EQ(FreeBlocks(1), 10);
}

TEST_F(GroupRequestsTest, ARouterThatDoesNotComeEndsThem) {
  Bind();
  Announce(Spec(1, 6, 4), formation_);
  RunAll();
  for (const TimeUs end = now_ + 2 * kSecondUs; now_ < end;) Pass();
  EXPECT_TRUE(At(0).ended[1].unclaimed);
}

// Its first choice has no blocks that others could share.
TEST_F(GroupRequestsTest, WhoWaitsForThePromptIsPlannedByItself) {
  Bind();
  for (uint64_t serial = 1; serial <= 3; ++serial) Announce(Spec(serial, 6, 9), formation_);
  Announce(Spec(4, 6, 9), formation_);  // waits
  Do(0, AnnounceCalled{{.spec = Spec(5, 6, 9), .epoch = kEpoch, .prompt_of = RequestId{7, 4}}, {}});
  EXPECT_EQ(StateOf(5), "announced");
  for (uint64_t serial = 1; serial <= 4; ++serial) Attach(serial);
  RunAll();
  EXPECT_EQ(EndOf(5), absl::UnavailableError("prompt_of: that request has ended"));
}

// The first in the line of preempted ones cannot be told to the members; those behind it join.
TEST_F(GroupRequestsTest, APreemptedOneThatMayNotJoinKeepsNobodyOut) {
  auto huge = Spec(1, 4, 30);
  huge->sampling.assign(FeedOffer::kSamplingMax + 1, 'x');
  StartOwn(0, Spec(3, 4, 30));
  StartOwn(0, huge);
  StartOwn(0, Spec(2, 4, 30));
  for (int steps = 0; steps < 40 && StateOf(1) != "preempted"; ++steps) Step();
  ASSERT_EQ(StateOf(2), "preempted");
  ASSERT_EQ(StateOf(1), "preempted");
  Bind();
  EXPECT_EQ(StateOf(1), "preempted");
  EXPECT_EQ(StateOf(2), "bound");
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 30));
  EXPECT_EQ(At(0).tokens[2], Expected(2, 30));
}

}  // namespace
}  // namespace skein::scheduler
