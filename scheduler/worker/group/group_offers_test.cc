#include "scheduler/worker/group/group_offers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/kv_in/block_quarantine.h"

namespace skein::scheduler {
namespace {

constexpr uint64_t kFormation = 3;

OfferedSequence SequenceOf(int64_t prompt, int64_t output) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = {7, 1};
  spec->prompt.resize(static_cast<size_t>(prompt));
  std::iota(spec->prompt.begin(), spec->prompt.end(), 100);
  spec->max_tokens = output + 5;
  spec->min_tokens = 2;
  spec->sampling = "sampling";
  spec->stop_token_ids = {4, 5};
  spec->priority = -2;
  return {.epoch = {5},
          .spec = std::move(spec),
          .output = std::vector<int32_t>(static_cast<size_t>(output), 9)};
}

class GroupOffersTest : public ::testing::Test {
 protected:
  // As the lead of a group of 2 sends it.
  static std::vector<FeedOffer> PartsOf(const OfferedSequence& sequence) {
    FeedEffects effects;
    SendOffer(kFormation, /*ranks=*/2, sequence, &effects);
    std::vector<FeedOffer> parts;
    for (const FeedEffect& effect : effects) {
      EXPECT_EQ(std::get<SendFeed>(effect).rank, 1);
      parts.push_back(std::get<FeedOffer>(std::get<SendFeed>(effect).message));
    }
    return parts;
  }
  GroupOffers::Answer Reserve(int64_t tokens) {
    return offers_.Reserve({kFormation, /*number=*/4, {7, 1}, {5}, tokens});
  }

  bool room_ = true;
  uint64_t grants_ = 0;
  BlockPool pool_{8};
  BlockQuarantine quarantine_{&pool_, [](GrantId) {}};
  ComingBlocks coming_{&pool_, &quarantine_, [this] { return GrantId{++grants_}; }};
  GroupOffers offers_{{kFormation, /*tokens_per_block=*/4, "memory"}, &coming_, [this](int64_t) {
                        return room_ ? absl::OkStatus() : absl::ResourceExhaustedError("wanted");
                      }};
};

TEST_F(GroupOffersTest, TheLastPartCompletesAnOffer) {
  const auto most = static_cast<int64_t>(FeedOffer::kTokensMax);
  for (const int64_t prompt : {int64_t{1}, most - 3, most, 2 * most + 1}) {
    SCOPED_TRACE(prompt);
    const OfferedSequence sent = SequenceOf(prompt, 3);
    const std::vector<FeedOffer> parts = PartsOf(sent);
    EXPECT_EQ(static_cast<int64_t>(parts.size()), (prompt + 3 + most - 1) / most);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto offered = offers_.Take(parts[i]);
      ASSERT_TRUE(offered.ok()) << offered.status();
      ASSERT_EQ(offered->has_value(), i + 1 == parts.size());
      if (!offered->has_value()) continue;
      const OfferedSequence& one = **offered;
      EXPECT_EQ(one.spec->prompt, sent.spec->prompt);
      EXPECT_EQ(one.output, sent.output);
      EXPECT_EQ(one.spec->sampling, "sampling");
      EXPECT_EQ(one.spec->stop_token_ids, sent.spec->stop_token_ids);
      EXPECT_EQ(one.spec->max_tokens, sent.spec->max_tokens);
      EXPECT_EQ(one.blocks, nullptr);
    }
  }
}

// What a member hands over goes to the lead alone, which learns how senior it is.
TEST_F(GroupOffersTest, WhatIsHandedOverComesWithItsAgeAndPriority) {
  const OfferedSequence sent = SequenceOf(static_cast<int64_t>(FeedOffer::kTokensMax), 3);
  FeedEffects effects;
  SendHandedOver(kFormation, sent, /*age_us=*/77, &effects);
  ASSERT_EQ(effects.size(), 2u);
  for (const FeedEffect& effect : effects) {
    const auto& send = std::get<SendFeed>(effect);
    EXPECT_EQ(send.rank, 0);
    const auto& part = std::get<FeedOffer>(send.message);
    EXPECT_EQ(part.age_us, 77);
    const auto offered = offers_.Take(part);
    ASSERT_TRUE(offered.ok()) << offered.status();
    if (!offered->has_value()) continue;
    EXPECT_EQ((*offered)->spec->priority, -2);
    EXPECT_EQ((*offered)->output, sent.output);
  }
}

TEST_F(GroupOffersTest, WhatCanNeverRunInTheGroupIsRefusedByName) {
  const OfferedSequence sequence = SequenceOf(20, 7);  // 32 tokens at most
  EXPECT_TRUE(CheckOffer(*sequence.spec, /*total_blocks=*/8, /*tokens_per_block=*/4).ok());
  EXPECT_EQ(
      CheckOffer(*sequence.spec, 7, 4),
      absl::ResourceExhaustedError("KV blocks: the request needs 8 at each rank, which has 7"));
  RequestSpec large = *sequence.spec;
  large.sampling.resize(FeedOffer::kSamplingMax + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOffer(large, 8, 4)));
}

TEST_F(GroupOffersTest, APartThatIsLostIsSeen) {
  const std::vector<FeedOffer> parts =
      PartsOf(SequenceOf(3 * static_cast<int64_t>(FeedOffer::kTokensMax), 0));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(offers_.Take(parts[0]).ok());
  EXPECT_EQ(offers_.Take(parts[2]).status(),
            absl::InternalError("an offer's part begins at token 32768 after 16384"));
}

TEST_F(GroupOffersTest, AnOfferTakesTheBlocksThatWereKeptForItsKv) {
  const GroupOffers::Answer answer = Reserve(9);
  ASSERT_TRUE(answer.reserved.why.ok()) << answer.reserved.why;
  EXPECT_EQ(answer.reserved.number, 4u);
  EXPECT_EQ(answer.reserved.blocks.size(), 3u);
  EXPECT_EQ(answer.reserved.memory, "memory");
  EXPECT_EQ(answer.grant, GrantId{1});
  OfferedSequence sequence = SequenceOf(9, 1);
  sequence.kv_tokens = 9;
  const auto offered = offers_.Take(PartsOf(sequence)[0]);
  ASSERT_TRUE(offered.ok()) << offered.status();
  EXPECT_EQ(*(*offered)->blocks, answer.reserved.blocks);
  EXPECT_FALSE(coming_.Has({{7, 1}, {5}}));
}

TEST_F(GroupOffersTest, AnOfferWithKvThatIsNotHereIsAnError) {
  OfferedSequence sequence = SequenceOf(9, 1);
  sequence.kv_tokens = 9;
  EXPECT_TRUE(absl::IsInternal(offers_.Take(PartsOf(sequence)[0]).status()));
  ASSERT_TRUE(Reserve(4).reserved.why.ok());
  EXPECT_TRUE(absl::IsInternal(offers_.Take(PartsOf(sequence)[0]).status())) << "too few blocks";
}

TEST_F(GroupOffersTest, WhatCannotBeKeptIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Reserve(0).reserved.why));
  EXPECT_TRUE(absl::IsResourceExhausted(Reserve(33).reserved.why)) << "the pool has 8 blocks";
  room_ = false;
  EXPECT_EQ(Reserve(4).reserved.why, absl::ResourceExhaustedError("wanted"));
  room_ = true;
  EXPECT_TRUE(Reserve(4).reserved.why.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Reserve(4).reserved.why)) << "they are kept already";
  offers_.Withdraw({{7, 1}, {5}});
  EXPECT_TRUE(Reserve(4).reserved.why.ok());
}

}  // namespace
}  // namespace skein::scheduler
