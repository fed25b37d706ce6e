#include "scheduler/worker/kv_in/kv_in.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

constexpr TimeUs kLeaseUs = 900;
constexpr TimeUs kAskWaitUs = 50;
constexpr Epoch kEpoch{5};
constexpr Incarnation kWriter{9};

KvInConfig Config(int buffers) {
  return {.shape = testing::Identity(Role::kDecode, 10).shape,
          .total_blocks = 10,
          .memory = "memory",
          .lease_us = kLeaseUs,
          .staging = {.memory = std::vector<std::string>(buffers, "buffer"),
                      .slots = 2,
                      .acquire_wait_us = kAskWaitUs}};
}

// Prompts have six tokens in two blocks, in which there is room for two more.
class KvInTest : public ::testing::Test {
 protected:
  using Effects = std::vector<KvInEffect>;

  explicit KvInTest(int buffers = 0)
      : kv_in_(
            Config(buffers),
            [this](RequestId id, Epoch) {
              return KvIn::Gone{absl::CancelledError("gone"), committed_.count(id) > 0};
            },
            [this](KvInEffect effect) { effects_.push_back(std::move(effect)); }) {}

  template <class Event>
  Effects Do(const Event& event) {
    kv_in_.On(event, now_);
    return Taken();
  }
  Effects Until(TimeUs now) {
    now_ = now;
    kv_in_.RunTimers(now_);
    return Taken();
  }
  absl::Status Reserve(uint64_t serial) {
    return kv_in_.Reserve(Spec(serial), kEpoch, {kWriter}, now_);
  }
  OpenTransferReply Grant(uint64_t serial, uint64_t writer = 1, Incarnation incarnation = kWriter) {
    const Effects effects = Do(
        OpenTransferCalled{Call(), {{7, serial}, kEpoch, {writer}, incarnation, Config(0).shape}});
    return Of<AnswerOpenTransfer>(effects).at(0).reply;
  }
  absl::Status Renew(uint64_t serial, uint64_t writer = 1) {
    const Effects effects = Do(RenewCalled{Call(), {{7, serial}, kEpoch, {writer}}});
    return Of<AnswerRenew>(effects).at(0).reply.status;
  }
  absl::Status Commit(uint64_t serial, int64_t bytes = 256, bool has_token = true,
                      uint64_t writer = 1) {
    const Effects effects = Do(CommitCalled{Call(),
                                            {.id = {7, serial},
                                             .epoch = kEpoch,
                                             .bytes_per_layer = {bytes, bytes},
                                             .has_token = has_token,
                                             .token = 40,
                                             .prefill = {writer},
                                             .times = {1, 2, 3}}});
    return Of<AnswerCommit>(effects).at(0).reply.status;
  }
  Effects Release(uint64_t serial) {
    kv_in_.Release({7, serial}, now_);
    return Taken();
  }
  // The transport's answer to the CloseGrant among what was done since the last look.
  void Closed(GrantId grant) { Do(GrantClosed{grant}); }
  void Stopped(uint64_t serial, uint64_t writer = 1) {
    kv_in_.WriterStopped({7, serial}, kEpoch, {writer}, now_);
    Taken();
  }
  std::vector<KvIn::Outcome> Outcomes() { return kv_in_.TakeOutcomes(); }
  int64_t Free() const { return kv_in_.blocks().free; }
  CallId Call() { return {++calls_}; }

  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  std::set<RequestId> committed_;  // of those that are gone
  Effects effects_;
  KvIn kv_in_;

 private:
  Effects Taken() {
    EXPECT_TRUE(kv_in_.CheckInvariants().ok()) << kv_in_.CheckInvariants();
    return std::exchange(effects_, {});
  }
};

TEST_F(KvInTest, KvIsReservedGrantedCommittedAndReleased) {
  ASSERT_TRUE(Reserve(1).ok());
  EXPECT_EQ(Free(), 8) << "those of the prompt and of the first token after it";
  EXPECT_STREQ(kv_in_.StateOf({7, 1}), "reserved");
  const OpenTransferReply grant = Grant(1);
  ASSERT_TRUE(grant.status.ok()) << grant.status;
  EXPECT_EQ(grant.blocks, (std::vector<BlockId>{{0}, {1}})) << "those of the prompt";
  EXPECT_EQ(grant.memory, "memory");
  EXPECT_EQ(grant.lease_us, kLeaseUs);
  EXPECT_TRUE(Commit(1).ok());
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].status.ok());
  EXPECT_EQ(outcomes[0].result.token, 40);
  EXPECT_EQ(outcomes[0].result.times, (PrefillTimes{1, 2, 3}));
  EXPECT_STREQ(kv_in_.StateOf({7, 1}), "whole");
  EXPECT_EQ(kv_in_.NextDeadline(), kNever);
  EXPECT_TRUE(Commit(1).ok()) << "duplicate";
  EXPECT_TRUE(Renew(1).ok());
  EXPECT_FALSE(Grant(1).status.ok());
  EXPECT_TRUE(Outcomes().empty());
  Release(1);
  EXPECT_EQ(Free(), 10);
  EXPECT_TRUE(kv_in_.TakeFreed());
  EXPECT_FALSE(kv_in_.TakeFreed());
}

TEST_F(KvInTest, ATableIsExtendedOrTheExtensionIsRefused) {
  ASSERT_TRUE(Reserve(1).ok());
  const BlockTable before = kv_in_.TableOf({7, 1});
  ASSERT_TRUE(kv_in_.Extend({7, 1}, 20).ok());
  EXPECT_EQ(before->size(), 2u) << "a step may read it";
  EXPECT_EQ(kv_in_.TableOf({7, 1})->size(), 5u);
  EXPECT_TRUE(kv_in_.Covers({7, 1}, 20));
  EXPECT_FALSE(kv_in_.Covers({7, 1}, 21));
  ASSERT_TRUE(Reserve(2).ok());
  ASSERT_TRUE(kv_in_.Extend({7, 2}, 16).ok());
  const BlockTable after = kv_in_.TableOf({7, 1});
  EXPECT_EQ(kv_in_.Extend({7, 1}, 40).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(kv_in_.TableOf({7, 1}), after);
  EXPECT_EQ(Reserve(3).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(kv_in_.Has({7, 3}));
  Release(1);
  Release(2);
  EXPECT_EQ(Free(), 10);
}

TEST_F(KvInTest, OnlyNamedWritersAreGrantedTheBlocks) {
  ASSERT_TRUE(Reserve(1).ok());
  EXPECT_EQ(Grant(1, 2, {8}).status.code(), absl::StatusCode::kFailedPrecondition);
  kv_in_.AddWriters({7, 1}, {{8}});
  EXPECT_TRUE(Grant(1, 2, {8}).status.ok());
  EXPECT_EQ(Grant(2).status.message(), "gone");
}

TEST_F(KvInTest, TheKvIsWholeWhenAllWritersHaveCommitted) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);
  EXPECT_TRUE(Commit(1, 128, true, 2).ok());
  EXPECT_TRUE(Commit(1, 128, true, 2).ok()) << "duplicate";
  EXPECT_TRUE(Outcomes().empty());
  EXPECT_TRUE(Commit(1, 128, false, 1).ok());
  EXPECT_TRUE(Outcomes().at(0).status.ok());
}

TEST_F(KvInTest, ACommitThatCannotBeRightFails) {
  for (const auto& [bytes, has_token] : {std::pair{512, true}, {256, false}, {-1, true}}) {
    ASSERT_TRUE(Reserve(1).ok());
    Grant(1);
    EXPECT_EQ(Commit(1, bytes, has_token).code(), absl::StatusCode::kInvalidArgument);
    const auto outcomes = Outcomes();
    ASSERT_EQ(outcomes.size(), 1u);
    EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kUnavailable)
        << "the writer is at fault, not the request";
    Release(1);
    EXPECT_EQ(Free(), 10) << "the writer has said that it stopped";
  }
}

TEST_F(KvInTest, OneSilentWriterIsEnough) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);
  Until(500);
  EXPECT_TRUE(Renew(1, 1).ok());
  Until(899);
  EXPECT_TRUE(Outcomes().empty());
  Until(900);
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status));
  Until(5000);
  EXPECT_TRUE(Outcomes().empty()) << "once";
}

TEST_F(KvInTest, AReservationOfWhichNobodyIsHeardFails) {
  ASSERT_TRUE(Reserve(1).ok());
  EXPECT_EQ(kv_in_.NextDeadline(), kLeaseUs);
  Until(kLeaseUs);
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status));
}

TEST_F(KvInTest, BlocksAreFreeWhenTheirGrantIsClosedAndNotBefore) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);
  const Effects released = Release(1);
  const GrantId grant = Of<CloseGrant>(released).at(0).grant;
  EXPECT_EQ(Free(), 8);
  EXPECT_EQ(kv_in_.CountSequences().quarantined, 1);
  Stopped(1, 1);
  Stopped(1, 2);
  EXPECT_EQ(Free(), 8) << "their bytes may still be on their way";
  Until(1'000'000'000);
  EXPECT_EQ(Free(), 8) << "no time is long enough for a writer that stands still";
  EXPECT_EQ(kv_in_.NextDeadline(), kNever);
  ASSERT_TRUE(Reserve(1).ok()) << "the request comes once more, under another table";
  EXPECT_EQ(kv_in_.TableOf({7, 1})->at(0), BlockId{2});
  Closed({grant.value + 1});
  EXPECT_EQ(Free(), 6) << "another grant";
  Closed(grant);
  EXPECT_EQ(Free(), 8);
  EXPECT_TRUE(kv_in_.TakeFreed());
}

TEST_F(KvInTest, WhatAWriterHadPutBeforeItAbortedMayStillCome) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Stopped(1, 1);
  const GrantId grant = Of<CloseGrant>(Release(1)).at(0).grant;
  EXPECT_EQ(Free(), 8);
  Closed(grant);
  EXPECT_EQ(Free(), 10);
}

TEST_F(KvInTest, EachAttemptHasAGrantOfItsOwnWhichItsWritersShare) {
  ASSERT_TRUE(Reserve(1).ok());
  const auto grant_of = [this](uint64_t writer) {
    const Effects effects =
        Do(OpenTransferCalled{Call(), {{7, 1}, kEpoch, {writer}, kWriter, Config(0).shape}});
    return Of<AnswerOpenTransfer>(effects).at(0).grant;
  };
  const GrantId first = grant_of(1);
  EXPECT_NE(first, GrantId{});
  EXPECT_EQ(grant_of(2), first);
  EXPECT_EQ(grant_of(1), first) << "duplicate";
  EXPECT_EQ(Of<CloseGrant>(Release(1)).at(0).grant, first);
  ASSERT_TRUE(Reserve(1).ok());
  EXPECT_GT(grant_of(1), first);
}

TEST_F(KvInTest, AGrantIsClosedWhenTheKvIsWholeAndNobodyWaitsForWritersThatCommitted) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1);
  const Effects committed = Do(CommitCalled{Call(),
                                            {.id = {7, 1},
                                             .epoch = kEpoch,
                                             .bytes_per_layer = {256, 256},
                                             .has_token = true,
                                             .prefill = {1}}});
  const GrantId grant = Of<CloseGrant>(committed).at(0).grant;
  EXPECT_TRUE(Of<CloseGrant>(Release(1)).empty()) << "it was closed already";
  EXPECT_EQ(Free(), 10);
  Closed(grant);
  EXPECT_EQ(Free(), 10);
}

TEST_F(KvInTest, AWriterInQuarantineIsGivenNoFurtherTime) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);  // brings nothing: the KV is whole without it
  EXPECT_TRUE(Commit(1).ok());
  EXPECT_TRUE(Renew(1, 2).ok());
  committed_.insert({7, 1});
  Release(1);
  EXPECT_FALSE(Renew(1, 2).ok());
  EXPECT_EQ(Free(), 8);
  Closed({1});
  EXPECT_EQ(Free(), 10);
  EXPECT_TRUE(Renew(1, 2).ok()) << "nothing of it can be touched any more";
}

// Its writers are told that it is whole, now as before; the one that may still put is waited for.
TEST_F(KvInTest, ASequenceThatWasReleasedComesBackWithOtherBlocks) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);  // brings nothing
  EXPECT_TRUE(Commit(1).ok());
  committed_.insert({7, 1});
  Outcomes();
  Release(1);
  EXPECT_EQ(kv_in_.Resume(Spec(1), kEpoch, 36).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(kv_in_.Has({7, 1}));
  ASSERT_TRUE(kv_in_.Resume(Spec(1), kEpoch, 9).ok());
  EXPECT_EQ(kv_in_.TableOf({7, 1})->size(), 3u);
  EXPECT_EQ(Free(), 5);
  EXPECT_TRUE(Commit(1).ok()) << "duplicate";
  EXPECT_FALSE(Renew(1, 2).ok()) << "its blocks are in quarantine";
  EXPECT_FALSE(Grant(1, 3).status.ok());
  Closed({1});
  EXPECT_EQ(Free(), 7);
  EXPECT_TRUE(Renew(1, 2).ok());
  EXPECT_TRUE(Outcomes().empty());
  Release(1);
  EXPECT_EQ(Free(), 10);
}

TEST_F(KvInTest, WithoutStagingBuffersNobodyIsGivenOne) {
  const Effects effects = Do(AcquireStagingBufferCalled{Call(), {{7, 1}, kEpoch, {1}, 1}});
  EXPECT_EQ(Of<AnswerAcquireStagingBuffer>(effects).at(0).reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(KvInTest, WholeKvMovesOutOfExtraBlocksThatGoAndComingKvIsAwaited) {
  kv_in_.Grow({{10}, 8});
  EXPECT_EQ(kv_in_.blocks().total, 18);
  for (uint64_t serial = 1; serial <= 8; ++serial) ASSERT_TRUE(Reserve(serial).ok());
  const OpenTransferReply granted = Grant(6);
  EXPECT_EQ(granted.blocks, (std::vector<BlockId>{{10}, {11}})) << "extra ones, once own are taken";
  ASSERT_TRUE(Commit(6).ok());
  ASSERT_TRUE(Grant(7).status.ok());
  Release(8);
  EXPECT_EQ(kv_in_.LookAtGoing().movable, 0) << "none goes";
  kv_in_.Shrink();
  EXPECT_EQ(kv_in_.blocks().total, 14);
  KvIn::Going going = kv_in_.LookAtGoing();
  EXPECT_EQ(going.coming, (std::vector<RequestId>{{7, 7}}));
  EXPECT_EQ(going.movable, 2);
  EXPECT_EQ(going.awaited, 2);
  EXPECT_FALSE(Reserve(9).ok()) << "no own one is free";
  Release(1);
  Release(2);
  EXPECT_EQ(kv_in_.MoveGoing(), (std::vector<BlockMove>{{{10}, {0}}, {{11}, {1}}}));
  EXPECT_EQ(*kv_in_.TableOf({7, 6}), (std::vector<BlockId>{{0}, {1}}));
  Release(7);  // its writer may still put into them
  going = kv_in_.LookAtGoing();
  EXPECT_TRUE(going.coming.empty());
  EXPECT_EQ(going.awaited, 2);
  EXPECT_EQ(kv_in_.blocks().total, 12);
  Closed({2});
  EXPECT_EQ(kv_in_.LookAtGoing().awaited, 0);
  EXPECT_EQ(kv_in_.blocks().total, 10);
  EXPECT_TRUE(kv_in_.CheckInvariants().ok()) << kv_in_.CheckInvariants();
}

TEST_F(KvInTest, ChoicesThatShareABlockThatGoesStillShareIt) {
  ASSERT_TRUE(Reserve(1).ok());
  kv_in_.Grow({{10}, 4});
  for (uint64_t serial = 2; serial <= 6; ++serial) ASSERT_TRUE(Reserve(serial).ok());
  ASSERT_TRUE(Grant(6).status.ok());
  ASSERT_TRUE(Commit(6).ok());
  ASSERT_TRUE(kv_in_.Share({7, 6}, 1, Spec(7), kEpoch).ok());
  ASSERT_EQ(*kv_in_.TableOf({7, 7}), (std::vector<BlockId>{{10}, {12}}));
  Release(1);
  Release(2);
  kv_in_.Shrink();
  EXPECT_EQ(kv_in_.LookAtGoing().movable, 3);
  EXPECT_EQ(kv_in_.MoveGoing().size(), 3u);
  const std::vector<BlockId> first = *kv_in_.TableOf({7, 6}), other = *kv_in_.TableOf({7, 7});
  EXPECT_EQ(first[0], other[0]);
  EXPECT_NE(first[1], other[1]);
  EXPECT_EQ(kv_in_.blocks().shared, 1);
  EXPECT_EQ(kv_in_.blocks().total, 10);
  EXPECT_TRUE(kv_in_.CheckInvariants().ok()) << kv_in_.CheckInvariants();
}

class KvInExtraTest : public KvInTest {
 protected:
  // Request 6 is whole in extra blocks that its first writer may still reach.
  void BeginWholeInExtraBlocks() {
    ASSERT_TRUE(kv_in_.Reserve(Spec(1), kEpoch, {kWriter}, now_).ok());
    kv_in_.Grow({{10}, 4});
    for (uint64_t serial = 2; serial <= 6; ++serial) ASSERT_TRUE(Reserve(serial).ok());
    ASSERT_TRUE(Grant(6, 1).status.ok());
    ASSERT_TRUE(Grant(6, 2).status.ok());
    ASSERT_TRUE(Commit(6, 256, true, 2).ok());
  }
  // The writer is gone and an own block is free: all that goes can be moved.
  void ExpectMovableOnceClosed() {
    Closed({1});
    Release(1);
    EXPECT_EQ(kv_in_.LookAtGoing().movable, 2);
    EXPECT_EQ(kv_in_.MoveGoing().size(), 2u);
    EXPECT_TRUE(kv_in_.CheckInvariants().ok()) << kv_in_.CheckInvariants();
  }
};

TEST_F(KvInExtraTest, WholeKvThatAWriterMayStillReachIsNotMoved) {
  BeginWholeInExtraBlocks();
  kv_in_.Shrink();
  KvIn::Going going = kv_in_.LookAtGoing();
  EXPECT_EQ(going.stuck, (std::vector<RequestId>{{7, 6}}));
  EXPECT_EQ(going.awaited, 2);
  EXPECT_TRUE(kv_in_.MoveGoing().empty());
  ExpectMovableOnceClosed();
}

TEST_F(KvInExtraTest, ARequestThatSharesAQuarantinedBlockIsMovedOnceTheWriterIsGone) {
  BeginWholeInExtraBlocks();
  ASSERT_TRUE(kv_in_.Share({7, 6}, 1, Spec(7), kEpoch).ok());
  Release(6);
  kv_in_.Shrink();
  const KvIn::Going going = kv_in_.LookAtGoing();
  EXPECT_EQ(going.stuck, (std::vector<RequestId>{{7, 7}}));
  EXPECT_EQ(going.awaited, 3);
  EXPECT_TRUE(kv_in_.MoveGoing().empty());
  ExpectMovableOnceClosed();
}

class KvInStagingTest : public KvInTest {
 protected:
  KvInStagingTest() : KvInTest(/*buffers=*/1) {}

  void Begin(uint64_t serial) {
    ASSERT_TRUE(Reserve(serial).ok());
    const OpenTransferReply grant = Grant(serial);
    EXPECT_EQ(grant.staging_slots, 2);
    EXPECT_TRUE(grant.blocks.empty());
  }
  Effects Acquire(uint64_t serial, uint64_t acquisition = 1) {
    return Do(AcquireStagingBufferCalled{Call(), {{7, serial}, kEpoch, {1}, acquisition}});
  }
  static absl::Status Asked(const Effects& effects) {
    return Of<AnswerAcquireStagingBuffer>(effects).at(0).reply.status;
  }
  Effects Part(uint64_t serial, uint64_t part) {
    return Do(TakePartCalled{Call(), {{7, serial}, kEpoch, {1}, part, {{0, 0, 1}}}});
  }
};

TEST_F(KvInStagingTest, WritersAreAnsweredWhenTheirTurnComes) {
  Begin(1);
  Begin(2);
  EXPECT_TRUE(Asked(Acquire(1)).ok());
  EXPECT_TRUE(Acquire(2).empty());
  EXPECT_EQ(Asked(Acquire(2)).message(), "a later call of this writer replaces this one")
      << "the older call";
  Until(kAskWaitUs - 1);
  EXPECT_EQ(Asked(Until(kAskWaitUs)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Acquire(2).empty());
  kv_in_.On(
      CommitCalled{Call(),
                   {.id = {7, 1}, .epoch = kEpoch, .bytes_per_layer = {256, 256}, .prefill = {1}}},
      now_);
  // The first request is whole: its buffer is free as soon as no late put reaches it.
  const GrantId former = Of<CloseGrant>(std::exchange(effects_, {})).at(0).grant;
  EXPECT_EQ(Asked(Acquire(2)).message(), "a later call of this writer replaces this one");
  const Effects closed = Do(GrantClosed{former});
  EXPECT_TRUE(Asked(closed).ok());
  EXPECT_GT(Of<AnswerAcquireStagingBuffer>(closed).at(0).grant, former);
}

TEST_F(KvInStagingTest, AWriterThatGetsItsBufferBackWritesUnderTheSameGrant) {
  Begin(1);
  const GrantId grant = Of<AnswerAcquireStagingBuffer>(Acquire(1, 1)).at(0).grant;
  EXPECT_NE(grant, GrantId{});
  Do(ReleaseStagingBufferCalled{Call(), {{7, 1}, kEpoch, {1}, 1}});
  const Effects again = Acquire(1, 2);
  EXPECT_EQ(Of<AnswerAcquireStagingBuffer>(again).at(0).grant, grant);
  EXPECT_TRUE(Of<CloseGrant>(again).empty());
}

// The next one's turn has come, and it asks in vain as long as the former one is stopped.
TEST_F(KvInStagingTest, ABufferIsNotLentWhileALatePutMayReachIt) {
  Begin(1);
  Begin(2);
  const GrantId former = Of<AnswerAcquireStagingBuffer>(Acquire(1)).at(0).grant;
  EXPECT_TRUE(Acquire(2).empty());
  Release(1);
  Stopped(1);
  for (TimeUs now = 100; now < 800; now += 100) {
    EXPECT_EQ(Asked(Until(now)).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(Renew(2).ok());
    EXPECT_TRUE(Of<AnswerAcquireStagingBuffer>(Acquire(2, static_cast<uint64_t>(now))).empty());
  }
  EXPECT_TRUE(Asked(Do(GrantClosed{former})).ok());
}

TEST_F(KvInStagingTest, AWriterWhoseSequenceEndsIsToldSo) {
  Begin(1);
  Begin(2);
  Acquire(1);
  EXPECT_TRUE(Acquire(2).empty());
  kv_in_.Release({7, 2}, now_);
  EXPECT_EQ(Asked(effects_).message(), "gone");
}

TEST_F(KvInStagingTest, BlocksWaitForTheCopyIntoThemAndForNothingElse) {
  Begin(1);
  Acquire(1);
  const CopyPart copy = Of<CopyPart>(Part(1, 1)).at(0);
  EXPECT_EQ(copy.blocks, kv_in_.TableOf({7, 1}));
  EXPECT_EQ(Of<AnswerTakePart>(Part(1, 1)).at(0).reply.status.code(),
            absl::StatusCode::kUnavailable)
      << "it is being copied";
  Release(1);
  EXPECT_EQ(kv_in_.CountSequences().quarantined, 1);
  const Effects effects = Do(PartCopied{copy.copy, {}});
  EXPECT_EQ(Of<AnswerTakePart>(effects).at(0).reply.status.message(), "gone");
  EXPECT_EQ(Free(), 10);
  EXPECT_EQ(kv_in_.staging_buffers()->free(), 0) << "its writer may still put into it";
  Stopped(1);
  EXPECT_EQ(kv_in_.staging_buffers()->free(), 1);
}

TEST_F(KvInStagingTest, ACopyOfBeforeEndsWhileItsSequenceIsBack) {
  ASSERT_TRUE(Reserve(1).ok());
  Grant(1, 1);
  Grant(1, 2);
  Acquire(1);
  const CopyPart copy = Of<CopyPart>(Part(1, 1)).at(0);
  EXPECT_TRUE(Commit(1, 256, true, 2).ok()) << "whole without the first writer";
  Release(1);
  EXPECT_EQ(Free(), 8);
  ASSERT_TRUE(kv_in_.Resume(Spec(1), kEpoch, 9).ok());
  Do(PartCopied{copy.copy, {}});
  EXPECT_EQ(Free(), 7) << "the old blocks";
  Release(1);
  EXPECT_EQ(Free(), 10);
}

TEST_F(KvInStagingTest, ACopyThatFailedIsToldAndMayBeMadeOnceMore) {
  Begin(1);
  Acquire(1);
  const CopyPart copy = Of<CopyPart>(Part(1, 1)).at(0);
  Effects effects = Do(PartCopied{copy.copy, absl::InternalError("device")});
  EXPECT_EQ(Of<AnswerTakePart>(effects).at(0).reply.status.message(), "device");
  effects = Do(PartCopied{Of<CopyPart>(Part(1, 1)).at(0).copy, {}});
  EXPECT_TRUE(Of<AnswerTakePart>(effects).at(0).reply.status.ok());
  EXPECT_TRUE(Of<CopyPart>(Part(1, 1)).empty()) << "it was copied";
  EXPECT_TRUE(Commit(1).ok());
}

}  // namespace
}  // namespace skein::scheduler
