#include "scheduler/worker/kv_out/kv_out.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

constexpr TimeUs kLeaseUs = 900;
constexpr TimeUs kRetryUs = 50;

class KvOutTest : public ::testing::Test {
 protected:
  using Effects = std::vector<KvOutEffect>;

  // A prompt of two blocks of four tokens, two layers.
  Effects Open(uint64_t serial, bool one_of_several = false, bool takes_blocks = false) {
    out_.Open({.id = {7, serial},
               .epoch = {5},
               .spec = Spec(serial),
               .endpoint = "d:1",
               .writer = {3},
               .one_of_several = one_of_several,
               .takes_blocks = takes_blocks,
               .permit = "permit"},
              now_);
    if (!takes_blocks) Begin(serial);
    return Taken();
  }
  void Begin(uint64_t serial) {
    out_.Begin(Spec(serial), {5}, {{0, {8}}, {1, {9}}}, /*more=*/false);
  }
  template <class Event>
  Effects Do(const Event& event) {
    out_.On(event, now_);
    return Taken();
  }
  Effects Until(TimeUs now) {
    now_ = now;
    out_.RunTimers(now_);
    return Taken();
  }
  Effects Granted(uint64_t serial) {
    return Do(OpenTransferReplied{{7, serial}, {5}, {{}, {{1}, {2}}, {}, "memory", kLeaseUs}});
  }
  Effects Written(uint64_t serial) { return Do(HandoffDone{{7, serial}, {5}, {256, 256}}); }
  Effects Computed(uint64_t serial) {
    out_.SetResult(
        {7, serial},
        {.has_token = true, .token = 40, .times = {1, 2, 0}, .computed_us = computed_us_}, now_);
    return Taken();
  }
  // Without those that tell of a grant: Opened.
  std::vector<KvOut::Outcome> Outcomes() {
    std::vector<KvOut::Outcome> outcomes = out_.TakeOutcomes();
    std::erase_if(outcomes, [this](const KvOut::Outcome& one) {
      opened_ += one.end == KvOut::End::kOpened ? 1 : 0;
      return one.end == KvOut::End::kOpened;
    });
    return outcomes;
  }
  // How many grants were told since the last call.
  int Opened() {
    EXPECT_TRUE(Outcomes().empty());
    return std::exchange(opened_, 0);
  }

  TimeUs now_ = 0;
  TimeUs computed_us_ = 0;
  int opened_ = 0;
  Effects effects_;
  KvOut out_{{.incarnation = {9},
              .shape = testing::Identity(Role::kPrefill, 10).shape,
              .retry_us = kRetryUs},
             [this](KvOutEffect effect) { effects_.push_back(std::move(effect)); }};

 private:
  Effects Taken() {
    EXPECT_TRUE(out_.CheckInvariants().ok()) << out_.CheckInvariants();
    return std::exchange(effects_, {});
  }
};

TEST_F(KvOutTest, ATransferIsOpenedGrantedWrittenAndCommitted) {
  Effects effects = Open(1);
  EXPECT_EQ(Of<OpenHandoff>(effects).at(0).blocks.size(), 2u);
  const CallOpenTransfer grant = Of<CallOpenTransfer>(effects).at(0);
  EXPECT_EQ(grant.endpoint, "d:1");
  EXPECT_EQ(grant.permit, "permit");
  EXPECT_EQ(grant.request.prefill, InstanceId{3});
  EXPECT_EQ(grant.request.incarnation, Incarnation{9});
  EXPECT_FALSE(out_.Writing({7, 1}));
  now_ = 10;
  const StartHandoff start = Of<StartHandoff>(Granted(1)).at(0);
  EXPECT_EQ(start.remote_blocks, (std::vector<BlockId>{{1}, {2}}));
  EXPECT_EQ(start.post_until_us, kLeaseUs) << "since the call was sent, not since its answer";
  EXPECT_TRUE(out_.Writing({7, 1}));
  EXPECT_EQ(Opened(), 1);
  computed_us_ = now_;
  EXPECT_TRUE(Computed(1).empty()) << "the KV is on its way";
  now_ = 30;
  const CallCommit commit = Of<CallCommit>(Written(1)).at(0);
  EXPECT_FALSE(out_.Writing({7, 1}));
  EXPECT_EQ(commit.permit, "permit") << "each call of the transfer shows it";
  EXPECT_EQ(commit.request.bytes_per_layer, (std::vector<int64_t>{256, 256}));
  EXPECT_EQ(commit.request.token, 40);
  EXPECT_EQ(commit.request.times, (PrefillTimes{1, 2, 20}));
  Do(CommitReplied{{7, 1}, {5}, {}});
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].end, KvOut::End::kCommitted);
  EXPECT_EQ(outcomes[0].path, HandoffPath{}) << "nothing was sent again";
  EXPECT_EQ(out_.NextDeadline(), kNever);
}

TEST_F(KvOutTest, ACommitThatIsRefusedIsNoFaultOfTheRequest) {
  Open(1);
  Granted(1);
  Computed(1);
  Written(1);
  Do(CommitReplied{{7, 1}, {5}, {absl::InvalidArgumentError("bytes of layer 1")}});
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].end, KvOut::End::kFailed);
  EXPECT_EQ(outcomes[0].status,
            absl::UnavailableError("the decode side refused the commit: bytes of layer 1"));
}

TEST_F(KvOutTest, OfACommitThatIsNeverAnsweredTheDecodeSideDecides) {
  Open(1);
  Granted(1);
  Computed(1);
  Written(1);
  for (int attempt = 1; attempt <= KvOutConfig().attempts; ++attempt) {
    EXPECT_TRUE(Outcomes().empty());
    Do(CommitReplied{{7, 1}, {5}, {absl::DeadlineExceededError("late")}});
    if (attempt < KvOutConfig().attempts) {
      EXPECT_EQ(Of<CallCommit>(Until(now_ + kRetryUs)).size(), 1u);
    }
  }
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].end, KvOut::End::kCommitted) << "its answer may be streaming";
  EXPECT_TRUE(outcomes[0].path.commit_unanswered);
  EXPECT_EQ(outcomes[0].path.retries, 2u);
  EXPECT_EQ(out_.NextDeadline(), kNever);
}

TEST_F(KvOutTest, CallsThatAreSentAgainAreTold) {
  Open(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  EXPECT_EQ(Of<CallOpenTransfer>(Until(now_ + kRetryUs)).size(), 1u);
  Granted(1);
  Computed(1);
  Written(1);
  Do(CommitReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  EXPECT_EQ(Of<CallCommit>(Until(now_ + kRetryUs)).size(), 1u);
  Do(CommitReplied{{7, 1}, {5}, {}});
  const HandoffPath path = Outcomes().at(0).path;
  EXPECT_EQ(path.retries, 2u);
  EXPECT_FALSE(path.commit_unanswered);
}

TEST_F(KvOutTest, ATransferMayBeBegunAfterItsGrant) {
  EXPECT_TRUE(Of<OpenHandoff>(Open(1, false, /*takes_blocks=*/true)).empty());
  EXPECT_TRUE(Granted(1).empty());
  EXPECT_EQ(Opened(), 1);
  EXPECT_FALSE(out_.Writing({7, 1}));
  Begin(1);
  const Effects effects = std::exchange(effects_, {});
  EXPECT_EQ(Of<OpenHandoff>(effects).size(), 1u);
  EXPECT_EQ(Of<StartHandoff>(effects).at(0).remote_blocks.size(), 2u);
  EXPECT_TRUE(out_.Writing({7, 1}));
}

// The sender is told the blocks before the first step, and once.
TEST_F(KvOutTest, WhatIsBegunIsOpenedLaterAndStaysBegunOverARefusal) {
  Begin(1);
  EXPECT_EQ(Of<OpenHandoff>(std::exchange(effects_, {})).size(), 1u);
  EXPECT_TRUE(out_.Begun({7, 1}));
  EXPECT_FALSE(out_.Has({7, 1}));
  Open(1, false, /*takes_blocks=*/true);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::ResourceExhaustedError("no room")}});
  EXPECT_EQ(Outcomes().at(0).end, KvOut::End::kRefused);
  out_.Close({7, 1});
  EXPECT_TRUE(out_.Begun({7, 1}));
  EXPECT_TRUE(Of<OpenHandoff>(Open(1, false, /*takes_blocks=*/true)).empty());
  computed_us_ = 100;
  now_ = 130;
  EXPECT_EQ(Of<StartHandoff>(Granted(1)).size(), 1u);
  EXPECT_EQ(Opened(), 1);
  Computed(1);
  now_ = 150;
  EXPECT_EQ(Of<CallCommit>(Written(1)).at(0).request.times, (PrefillTimes{1, 2, 50}))
      << "the wait for the grant is part of the handoff";
  out_.Stop({7, 1});
  out_.Forget({7, 1});
  EXPECT_FALSE(out_.Begun({7, 1}));
}

TEST_F(KvOutTest, ARefusedTransferMayBeOpenedElsewhere) {
  Open(1, false, /*takes_blocks=*/true);
  const absl::Status full = absl::ResourceExhaustedError("no room");
  Do(OpenTransferReplied{{7, 1}, {5}, {full}});
  const auto outcomes = Outcomes();
  EXPECT_EQ(outcomes.at(0).end, KvOut::End::kRefused);
  EXPECT_EQ(outcomes.at(0).status, full);
  out_.Forget({7, 1});
  EXPECT_EQ(Of<CallOpenTransfer>(Open(1, false, /*takes_blocks=*/true)).size(), 1u);
  Granted(1);
  EXPECT_EQ(Opened(), 1);
  Open(3, false, /*takes_blocks=*/true);
  Do(OpenTransferReplied{{7, 3}, {5}, {absl::DeadlineExceededError("late")}});
  Until(now_ + kRetryUs);
  Do(OpenTransferReplied{{7, 3}, {5}, {full}});
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status)) << "the first may have taken blocks";
  // Of a transfer that takes none it can only be a full inbox.
  Open(2);
  Do(OpenTransferReplied{{7, 2}, {5}, {full}});
  EXPECT_TRUE(Outcomes().empty());
  EXPECT_EQ(Of<CallOpenTransfer>(Until(now_ + kRetryUs)).size(), 1u);
}

TEST_F(KvOutTest, BlocksOfAnotherLayoutAreRefusedByName) {
  Open(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {{}, {{1}, {2}}, {.tp = 2}, "memory", kLeaseUs}});
  EXPECT_EQ(Outcomes().at(0).status,
            absl::FailedPreconditionError("layout.tp: decode 2, prefill 1"));
}

TEST_F(KvOutTest, KvThatIsWrittenWaitsForItsResult) {
  Open(1);
  Granted(1);
  EXPECT_TRUE(Of<CallCommit>(Written(1)).empty());
  EXPECT_EQ(Of<CallCommit>(Computed(1)).size(), 1u);
}

TEST_F(KvOutTest, CallsAreRepeatedWhenNobodyKnowsWhetherTheyGotThrough) {
  Open(1);
  for (int attempt = 2; attempt <= 3; ++attempt) {
    Do(OpenTransferReplied{{7, 1}, {5}, {absl::DeadlineExceededError("late")}});
    EXPECT_TRUE(Until(now_ + kRetryUs - 1).empty());
    Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("late")}});  // a duplicate
    EXPECT_EQ(Of<CallOpenTransfer>(Until(now_ + 1)).size(), 1u) << "it does not put the retry off";
  }
  EXPECT_TRUE(Outcomes().empty());
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("gone")}});
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u) << "the third was the last";
  EXPECT_EQ(outcomes[0].status, absl::UnavailableError("gone"));
}

TEST_F(KvOutTest, WhatTheDecodeSideRefusesIsNotAskedAgain) {
  Open(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::FailedPreconditionError("dtype: f32, not bf16")}});
  EXPECT_EQ(Outcomes().at(0).status, absl::FailedPreconditionError("dtype: f32, not bf16"));
  Open(2);
  Do(OpenTransferReplied{{7, 2}, {5}, {{}, {{1}}, {}, "memory", kLeaseUs}});
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status)) << "one block for two";
}

// Nobody cancelled the request: its other writer failed there first.
TEST_F(KvOutTest, ACancelAtTheDecodeSideIsAnotherWritersFailure) {
  Open(1, /*one_of_several=*/true);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::CancelledError("it has ended")}});
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status));
  Open(2);
  Do(OpenTransferReplied{{7, 2}, {5}, {absl::CancelledError("it has ended")}});
  EXPECT_TRUE(absl::IsCancelled(Outcomes().at(0).status));
}

// It had opened the transfer, and does not know it: the request may go on elsewhere.
TEST_F(KvOutTest, APermitThatIsRefusedIsNoFaultOfTheRequest) {
  Open(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::PermissionDeniedError("permit: it has expired")}});
  const auto outcomes = Outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].end, KvOut::End::kFailed);
  EXPECT_TRUE(absl::IsUnavailable(outcomes[0].status)) << "it is planned anew";
}

TEST_F(KvOutTest, ADecodeSideThatDoesNotKnowTheTransferIsAnotherProcess) {
  const absl::Status unknown = absl::NotFoundError("no transfer of the request is open here");
  Open(1);
  Granted(1);
  Until(kLeaseUs / 3);
  Do(RenewReplied{{7, 1}, {5}, {unknown, 0}});
  EXPECT_EQ(Outcomes().at(0).status, absl::UnavailableError(unknown.message()));
  now_ = 0;
  Open(2);
  Granted(2);
  Written(2);
  Computed(2);
  Do(CommitReplied{{7, 2}, {5}, {unknown}});
  EXPECT_EQ(Outcomes().at(0).status, absl::UnavailableError(unknown.message()));
}

TEST_F(KvOutTest, TheLeaseIsRenewedAndNothingIsWrittenAfterItsEnd) {
  Open(1);
  Granted(1);
  EXPECT_EQ(Of<CallRenew>(Until(kLeaseUs / 3)).size(), 1u);
  const auto extended = Of<ExtendHandoff>(Do(RenewReplied{{7, 1}, {5}, {{}, kLeaseUs}}));
  EXPECT_EQ(extended.at(0).post_until_us, kLeaseUs / 3 + kLeaseUs);
  EXPECT_EQ(Of<CallRenew>(Until(2 * kLeaseUs / 3)).size(), 1u);
  Until(kLeaseUs / 3 + kLeaseUs);  // that one is never answered
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status));
  out_.Stop({7, 1});
  EXPECT_TRUE(out_.Writing({7, 1})) << "until the sender has stopped";
  Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(Outcomes().at(0).end, KvOut::End::kStopped);
  out_.Forget({7, 1});
}

TEST_F(KvOutTest, AStoppedTransferTellsTheSenderOnceAndBeginsNothing) {
  Open(1);
  out_.Stop({7, 1});
  EXPECT_TRUE(effects_.empty()) << "nothing was written yet";
  EXPECT_TRUE(Granted(1).empty());
  out_.Forget({7, 1});
  EXPECT_FALSE(out_.Has({7, 1}));
  Open(2);
  Granted(2);
  out_.Stop({7, 2});
  out_.Stop({7, 2});
  EXPECT_EQ(Of<StopHandoff>(std::exchange(effects_, {})).size(), 1u);
  EXPECT_TRUE(Do(RenewReplied{{7, 2}, {5}, {{}, kLeaseUs}}).empty());
  Written(2);  // crosses the stop
  EXPECT_EQ(Outcomes().at(0).end, KvOut::End::kStopped);
  EXPECT_EQ(out_.CountWriting(), 0);
}

TEST_F(KvOutTest, WordsOfAnotherEpochOrRequestChangeNothing) {
  Open(1);
  EXPECT_TRUE(
      Do(OpenTransferReplied{{7, 1}, {4}, {{}, {{1}, {2}}, {}, "memory", kLeaseUs}}).empty());
  EXPECT_TRUE(Do(HandoffDone{{7, 9}, {5}, {256, 256}}).empty());
  EXPECT_TRUE(Do(HandoffDone{{7, 1}, {5}, {256, 256}}).empty()) << "before the grant";
  Granted(1);
  EXPECT_TRUE(Granted(1).empty()) << "a duplicate";
  EXPECT_TRUE(Outcomes().empty());
}

TEST_F(KvOutTest, AFailedHandoffMayBeTriedElsewhereWhateverItsCode) {
  Open(1);
  Granted(1);
  Do(HandoffFailed{{7, 1}, {5}, absl::InternalError("bus error")});
  EXPECT_TRUE(absl::IsUnavailable(Outcomes().at(0).status));
  EXPECT_FALSE(out_.Writing({7, 1}));
}

// A prompt of six tokens, of four a block here and eight at each rank of two.
class KvOutGroupTest : public KvOutTest {
 protected:
  static HandoffShape TwoHeads() {
    HandoffShape shape = testing::Identity(Role::kPrefill, 10).shape;
    shape.kv_heads = 2;
    return shape;
  }
  static OpenTransferReply Reply() {
    return {.blocks = {{1}},
            .layout = {2},
            .memory = "zero",
            .lease_us = kLeaseUs,
            .others = {{{{5}}, "one"}}};
  }
  // Opened and answered. Also begun.
  Effects AnswerOf(const OpenTransferReply& reply) {
    out_.Open({.id = {7, 1}, .epoch = {5}, .spec = Spec(1), .endpoint = "d:1", .writer = {3}},
              now_);
    out_.Begin(Spec(1), {5}, {{0, {8}}, {1, {9}}}, /*more=*/false);
    Taken();
    out_.On(OpenTransferReplied{{7, 1}, {5}, reply}, now_);
    return Taken();
  }
  Effects Taken() { return std::exchange(effects_, {}); }
  absl::Status FailureOf(const OpenTransferReply& reply) {
    AnswerOf(reply);
    const auto outcomes = out_.TakeOutcomes();
    return outcomes.size() == 1 ? outcomes[0].status : absl::OkStatus();
  }

  KvOut out_{{.incarnation = {9}, .shape = TwoHeads()},
             [this](KvOutEffect effect) { effects_.push_back(std::move(effect)); }};
};

TEST_F(KvOutGroupTest, EveryRankOfABoundGroupIsWrittenTo) {
  const auto started = Of<StartHandoff>(AnswerOf(Reply()));
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].remote_blocks, (std::vector<BlockId>{{1}}));
  EXPECT_EQ(started[0].memory, "zero");
  EXPECT_EQ(started[0].others, Reply().others);
}

TEST_F(KvOutGroupTest, ALayoutThatDoesNotFitItsRanksIsRefused) {
  OpenTransferReply reply = Reply();
  reply.layout = {4};
  EXPECT_EQ(FailureOf(reply).message(), "layout.tp: decode 4, prefill 1");
}

TEST_F(KvOutGroupTest, ARankWithTooFewBlocksIsRefused) {
  OpenTransferReply reply = Reply();
  reply.others[0].blocks = {};
  EXPECT_EQ(FailureOf(reply).message(),
            "the decode instance granted 0 blocks of a rank; the prompt needs 1");
}

TEST_F(KvOutGroupTest, RanksWithoutALayoutAreRefused) {
  OpenTransferReply reply = Reply();
  reply.layout = {1};
  EXPECT_TRUE(absl::IsUnavailable(FailureOf(reply)));
}

}  // namespace
}  // namespace skein::scheduler
