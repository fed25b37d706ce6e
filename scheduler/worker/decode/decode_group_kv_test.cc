// Requests that were placed in a bound group and whose KV comes from prefill instances: into blocks
// of every rank, from which the group runs them, without computing anything again.
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/worker/testing/decode_pair_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

class DecodeGroupKvTest : public testing::DecodePairTest {
 protected:
  void AnnounceKv(const SpecPtr& spec, std::vector<Incarnation> writers = {{2}}) {
    Do(0,
       AnnounceCalled{
           {.spec = spec, .epoch = kEpoch, .writers = std::move(writers), .formation = formation_},
           {}});
  }
  // The latest answer.
  OpenTransferReply OpenKv(uint64_t serial, uint64_t writer = 1) {
    const size_t before = At(0).opens.size();
    Do(0, OpenTransferCalled{{++opens_}, {{7, serial}, kEpoch, {writer}, {1 + writer}, Shape()}});
    if (At(0).opens.size() == before) return {absl::UnknownError("not answered yet")};
    return At(0).opens.back().reply;
  }
  OpenTransferReply StartKv(const SpecPtr& spec) {
    AnnounceKv(spec);
    return OpenKv(spec->id.serial);
  }
  void CommitKv(uint64_t serial, int64_t blocks, bool has_token = true, uint64_t writer = 1) {
    const int64_t bytes = blocks * Shape().BlockBytes();  // as the writer has them
    CommitRequest commit{.id = {7, serial}, .epoch = kEpoch, .bytes_per_layer = {bytes, bytes}};
    commit.has_token = has_token;
    commit.token = has_token ? TokenOf({7, serial}, 0) : 0;
    commit.prefill = {writer};
    Do(0, CommitCalled{{++opens_}, commit});
  }
  void CloseGrants(int rank) {
    for (auto& closing = At(rank).closing; !closing.empty(); closing.pop_front()) {
      Do(rank, GrantClosed{closing.front()});
    }
  }
  void ExpectAllFreeOnceGrantsAreClosed() {
    for (int rank = 0; rank < 2; ++rank) CloseGrants(rank);
    ExpectAllFree();
  }

  uint64_t opens_ = 1000, serial_ = 0;
};

TEST_F(DecodeGroupKvTest, ItRunsFromTheBlocksThatItsWritersWereTold) {
  Bind();
  const OpenTransferReply reply = StartKv(Spec(1, 12, 6));
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.layout, KvLayout{2});
  EXPECT_EQ(reply.blocks.size(), 2u);  // of 8 tokens
  ASSERT_EQ(reply.others.size(), 1u);
  EXPECT_EQ(reply.others[0].blocks.size(), 2u);
  EXPECT_EQ(reply.others[0].memory, "memory");
  EXPECT_EQ(FreeBlocks(1), 8);
  EXPECT_EQ(At(0).opened, (std::vector<RequestId>{{7, 1}}));
  Attach(1);
  CommitKv(1, 3);
  EXPECT_EQ(StateOf(1), "bound");
  const std::vector<BlockId>* granted[] = {&reply.blocks, &reply.others[0].blocks};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_FALSE(At(rank).engine.empty());
    const StepSequence& one = At(rank).engine.front().sequences.at(0);
    EXPECT_EQ(one.position, 12);
    EXPECT_EQ(one.count, 1);
    EXPECT_EQ(one.layout, KvLayout{2});
    EXPECT_EQ(*one.blocks, *granted[rank]) << "rank " << rank;
  }
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 6));
  EXPECT_EQ(At(0).group_steps, 5);  // a token each
  EXPECT_EQ(At(1).group_steps, 5);
  EXPECT_EQ(At(0).own_steps, 0);
  ExpectAllFreeOnceGrantsAreClosed();
}

// Only the lead tells it. The group's next step may be agreed already when a request comes; then it
// runs in the one behind it, which comes a Pass later.
TEST_F(DecodeGroupKvTest, TheWaitForTheGroupsFirstStepWithItIsTold) {
  Bind();
  for (const uint64_t serial : {1, 2}) {
    ASSERT_TRUE(StartKv(Spec(serial, 12, 6)).status.ok());
    Attach(serial);
  }
  CommitKv(1, 3);
  now_ += 70;
  CommitKv(2, 3);  // the step of the first one runs
  now_ += 30;
  RunAll();
  ASSERT_EQ(At(0).waits_us.size(), 2u);
  EXPECT_EQ(At(0).waits_us[1], 0);
  EXPECT_GE(At(0).waits_us[2], 30);
  EXPECT_LE(At(0).waits_us[2], 30 + 6 * kMillisecondUs);
  EXPECT_TRUE(At(1).waits_us.empty());
  ExpectAllFreeOnceGrantsAreClosed();
}

TEST_F(DecodeGroupKvTest, SeveralWritersGetTheSameBlocks) {
  Bind();
  AnnounceKv(Spec(1, 12, 3), {{2}, {3}});
  const OpenTransferReply one = OpenKv(1, 1), two = OpenKv(1, 2);
  ASSERT_TRUE(one.status.ok() && two.status.ok());
  EXPECT_EQ(one.blocks, two.blocks);
  EXPECT_EQ(one.others, two.others);
  Attach(1);
  CommitKv(1, 1, /*has_token=*/false, 1);
  EXPECT_EQ(StateOf(1), "granted");
  CommitKv(1, 2, /*has_token=*/true, 2);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 3));
}

TEST_F(DecodeGroupKvTest, WhatIsNotBoundMayGoElsewhere) {
  formation_ = 4;
  EXPECT_TRUE(absl::IsResourceExhausted(StartKv(Spec(1)).status));
  EXPECT_EQ(StateOf(1), "announced");  // the orchestrator withdraws it
  Bind();
  EXPECT_EQ(FreeBlocks(0), 10);
}

TEST_F(DecodeGroupKvTest, ARankWithoutRoomRefusesForAll) {
  Bind();
  StartOwn(1, Spec(9, 26, 10));  // 7 of 10 blocks, and headroom
  const int64_t free = FreeBlocks(1);
  const OpenTransferReply reply = StartKv(Spec(1, 12, 6));
  EXPECT_TRUE(absl::IsResourceExhausted(reply.status)) << reply.status;
  EXPECT_NE(std::string(reply.status.message()).find("rank 1"), std::string::npos) << reply.status;
  EXPECT_EQ(StateOf(1), "announced");
  EXPECT_EQ(FreeBlocks(0), 10);
  EXPECT_EQ(FreeBlocks(1), free);
}

// Its ranks may have kept blocks while one of them had not answered yet.
TEST_F(DecodeGroupKvTest, AnAnnouncementThatIsWithdrawnLeavesNoBlocksBehind) {
  Bind();
  AnnounceKv(Spec(1, 12, 6));
  At(1).dead = true;  // it is silent
  OpenKv(1);
  EXPECT_EQ(StateOf(1), "announced");
  EXPECT_EQ(FreeBlocks(0), 8);
  Do(0, WithdrawCalled{{{7, 1}, kEpoch}});
  EXPECT_EQ(FreeBlocks(0), 10);
}

// Each of what can end it while its KV comes.
TEST_F(DecodeGroupKvTest, WhateverEndsItItsBlocksWaitForTheGrantAtEveryRank) {
  late_writers_ = true;
  Bind();
  for (const char* how : {"cancel", "abort", "lease", "detach", "release"}) {
    SCOPED_TRACE(how);
    const uint64_t serial = ++serial_;
    ASSERT_TRUE(StartKv(Spec(serial, 12, 6)).status.ok());
    const std::string_view by = how;
    if (by == "cancel") Do(0, CancelCalled{{{7, serial}, kEpoch, "the client left"}});
    if (by == "abort") {
      Do(0, AbortCalled{{{7, serial}, kEpoch, absl::InternalError("died"), {1}, {2}}});
    }
    if (by == "lease") {
      Attach(serial);
      for (int i = 0; i < 400; ++i) {
        now_ += 10 * kMillisecondUs;  // so that it listens
        Do(0, Tick{});
      }
    }
    if (by == "detach") {
      Do(0, AttachCalled{{77}, {7, serial}, kEpoch});
      Do(0, DetachCalled{{77}});
    }
    if (by == "release") Release(Switch::kHard);
    Pass();
    EXPECT_FALSE(EndOf(serial).ok());
    if (by == "lease" || by == "release") {
      EXPECT_TRUE(absl::IsUnavailable(EndOf(serial))) << EndOf(serial);
    }
    EXPECT_EQ(FreeBlocks(0), 8);
    EXPECT_EQ(FreeBlocks(1), 8);
    CommitKv(serial, 3);  // too late
    EXPECT_TRUE(At(0).engine.empty());
    ExpectAllFreeOnceGrantsAreClosed();
  }
}

TEST_F(DecodeGroupKvTest, AMemberThatDiesEndsIt) {
  late_writers_ = true;
  Bind();
  ASSERT_TRUE(StartKv(Spec(1, 12, 6)).status.ok());
  Kill(1);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(1))) << EndOf(1);
  EXPECT_EQ(FreeBlocks(0), 8);
  ExpectAllFreeOnceGrantsAreClosed();
}

TEST_F(DecodeGroupKvTest, AMemberThatLosesItsLeadGivesUpWhatItKept) {
  late_writers_ = true;
  Bind();
  ASSERT_TRUE(StartKv(Spec(1, 12, 6)).status.ok());
  Kill(0);
  EXPECT_EQ(FreeBlocks(1), 8);
  ExpectAllFreeOnceGrantsAreClosed();
}

// It was placed in the group before.
TEST_F(DecodeGroupKvTest, AReleaseWaitsForIt) {
  Bind();
  ASSERT_TRUE(StartKv(Spec(1, 12, 3)).status.ok());
  Attach(1);
  Release(Switch::kSequential);
  Pass();
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kBound);
  EXPECT_TRUE(absl::IsResourceExhausted(StartKv(Spec(2)).status));
  CommitKv(1, 3);
  RunAll();
  EXPECT_EQ(At(0).tokens[1], Expected(1, 3));
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
  ExpectAllFreeOnceGrantsAreClosed();
}

TEST_F(DecodeGroupKvTest, AReleaseGoesOnWhenItEnds) {
  Bind();
  ASSERT_TRUE(StartKv(Spec(1, 12, 3)).status.ok());
  Release(Switch::kSequential);
  Do(0, CancelCalled{{{7, 1}, kEpoch, "the client left"}});
  Pass();
  EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kEnded);
}

TEST_F(DecodeGroupKvTest, AnAnswerOfOneTokenNeverJoins) {
  Bind();
  ASSERT_TRUE(StartKv(Spec(1, 12, 1)).status.ok());
  Attach(1);
  CommitKv(1, 3);
  EXPECT_EQ(At(0).tokens[1], Expected(1, 1));
  EXPECT_TRUE(At(0).engine.empty());
  ExpectAllFreeOnceGrantsAreClosed();
}

// The blocks of a group are not shared; choices are planned with KV of their own.
TEST_F(DecodeGroupKvTest, ChoicesOfThePromptArePlannedAgain) {
  Bind();
  AnnounceKv(Spec(1, 12, 3));
  Do(0,
     AnnounceCalled{{.spec = Spec(2, 12, 3), .epoch = kEpoch, .prompt_of = RequestId{7, 1}}, {}});
  ASSERT_TRUE(OpenKv(1).status.ok());
  CommitKv(1, 3);
  EXPECT_TRUE(absl::IsUnavailable(EndOf(2))) << EndOf(2);
}

}  // namespace
}  // namespace skein::scheduler
