#include "scheduler/worker/group/group_reservations.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/kv_in/block_quarantine.h"

namespace skein::scheduler {
namespace {

constexpr int kRanks = 4;
constexpr TimeUs kAnswerUs = 100;
const GroupReservations::Key kKey({7, 1}, {5});

class GroupReservationsTest : public ::testing::Test {
 protected:
  void Start() {
    ASSERT_TRUE(reservations_.Start(kKey, /*tokens=*/6, /*blocks=*/2, now_, &effects_).ok());
  }
  FeedReserved AnswerOf(int rank) const {
    return {.epoch = 3,
            .number = 1,
            .id = kKey.first,
            .request_epoch = kKey.second,
            .blocks = {{10 * rank}, {10 * rank + 1}},
            .memory = std::to_string(rank)};
  }
  absl::Status Take(int rank) { return reservations_.Take(rank, AnswerOf(rank), now_, &effects_); }
  // How many messages of this kind were sent.
  template <class Message>
  int64_t Sent() const {
    int64_t sent = 0;
    for (const FeedEffect& effect : effects_) {
      sent += std::holds_alternative<Message>(std::get<SendFeed>(effect).message);
    }
    return sent;
  }

  TimeUs now_ = 1'000;
  FeedEffects effects_;
  int answered_ = 0;
  uint64_t grants_ = 0;
  BlockPool pool_{8};
  BlockQuarantine quarantine_{&pool_, [](GrantId) {}};
  ComingBlocks coming_{&pool_, &quarantine_, [this] { return GrantId{++grants_}; }};
  GroupReservations reservations_{{.epoch = 3, .ranks = kRanks, .answer_us = kAnswerUs},
                                  &coming_,
                                  [this](RequestId) { ++answered_; }};
};

TEST_F(GroupReservationsTest, ItIsGivenWhenAllRanksHaveAnswered) {
  Start();
  EXPECT_EQ(Sent<FeedReserve>(), kRanks - 1);
  for (const int rank : {2, 1, 3}) {
    EXPECT_TRUE(absl::IsUnavailable(reservations_.Ask(kKey).status()));
    EXPECT_EQ(answered_, 0);
    EXPECT_TRUE(Take(rank).ok());
  }
  EXPECT_EQ(answered_, 1);
  const auto others = reservations_.Ask(kKey);
  ASSERT_TRUE(others.ok()) << others.status();
  std::vector<TransferTarget> expected;
  for (const int rank : {1, 2, 3}) {
    expected.push_back({AnswerOf(rank).blocks, AnswerOf(rank).memory});
  }
  EXPECT_EQ(*others, expected);
  EXPECT_TRUE(reservations_.Given(kKey));
  EXPECT_EQ(reservations_.NextTick(), kNever);
  EXPECT_EQ(reservations_.End(), std::vector<GroupReservations::Key>{kKey});
}

TEST_F(GroupReservationsTest, ARefusalGivesItUpEverywhere) {
  Start();
  EXPECT_TRUE(Take(1).ok());
  FeedReserved refusal = AnswerOf(2);
  refusal.why = absl::ResourceExhaustedError("full");
  EXPECT_TRUE(reservations_.Take(2, refusal, now_, &effects_).ok());
  EXPECT_EQ(answered_, 1);
  EXPECT_EQ(Sent<FeedWithdraw>(), kRanks - 1);
  EXPECT_FALSE(coming_.Has(kKey));
  EXPECT_TRUE(Take(3).ok()) << "it is too late";
  EXPECT_EQ(reservations_.Ask(kKey).status(),
            absl::ResourceExhaustedError("rank 2 of the bound group: full"));
  EXPECT_TRUE(reservations_.empty());
}

TEST_F(GroupReservationsTest, AnAnswerOfAnotherSizeEndsTheEpoch) {
  Start();
  FeedReserved answer = AnswerOf(1);
  answer.blocks.push_back({12});
  EXPECT_EQ(reservations_.Take(1, answer, now_, &effects_),
            absl::InternalError("rank 1 keeps 3 blocks, asked for 2"));
}

TEST_F(GroupReservationsTest, ARankThatDoesNotAnswerInTimeEndsTheEpoch) {
  Start();
  EXPECT_TRUE(Take(1).ok());
  EXPECT_EQ(reservations_.NextTick(), now_ + kAnswerUs);
  EXPECT_TRUE(reservations_.Tick(now_ + kAnswerUs - 1, &effects_).ok());
  EXPECT_EQ(reservations_.Tick(now_ + kAnswerUs, &effects_),
            absl::DeadlineExceededError("rank 2: it did not answer a reservation in time"));
}

TEST_F(GroupReservationsTest, OneThatNobodyAsksForIsGivenUp) {
  Start();
  now_ += kAnswerUs / 2;
  for (const int rank : {1, 2, 3}) EXPECT_TRUE(Take(rank).ok());
  EXPECT_TRUE(reservations_.Tick(now_ + kAnswerUs, &effects_).ok());
  EXPECT_TRUE(reservations_.empty());
  EXPECT_EQ(Sent<FeedWithdraw>(), kRanks - 1);
  EXPECT_FALSE(coming_.Has(kKey));
}

TEST_F(GroupReservationsTest, WhatIsDismissedIsGoneAndLateAnswersAreIgnored) {
  EXPECT_FALSE(reservations_.Dismiss(kKey.first, &effects_));
  Start();
  EXPECT_TRUE(reservations_.Dismiss(kKey.first, &effects_));
  EXPECT_EQ(Sent<FeedWithdraw>(), kRanks - 1);
  EXPECT_TRUE(Take(1).ok());
  Start();
  EXPECT_TRUE(Take(2).ok()) << "its number is the former one's";
  for (const int rank : {1, 3}) {
    FeedReserved answer = AnswerOf(rank);
    answer.number = 2;
    EXPECT_TRUE(reservations_.Take(rank, answer, now_, &effects_).ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(reservations_.Ask(kKey).status())) << "rank 2 has not answered";
}

TEST_F(GroupReservationsTest, WithoutRoomHereNobodyIsAsked) {
  EXPECT_TRUE(absl::IsResourceExhausted(reservations_.Start(kKey, 30, 9, now_, &effects_)));
  EXPECT_TRUE(effects_.empty() && reservations_.empty());
}

}  // namespace
}  // namespace skein::scheduler
