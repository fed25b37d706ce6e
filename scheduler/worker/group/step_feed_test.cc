#include "scheduler/worker/group/step_feed.h"

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

namespace skein::scheduler {
namespace {

absl::StatusOr<FeedMessage> Decode(const std::string& bytes) {
  return DecodeFeed(std::as_bytes(std::span(bytes)));
}

std::vector<FeedMessage> SomeOfEach() {
  FeedPlan plan{.epoch = 5, .step = 1u << 20, .mode = {4, 2}};
  plan.removed = {1, 300};
  plan.preempted = {2};
  plan.added = {{301, {~uint64_t{0}, 7}, {FirstNumberOf(3)}}, {302, {1, 2}, {4}}};
  plan.slices = {{301, 512}, {302, 0}};
  return {plan,
          FeedPlan{.epoch = 5, .step = 2, .mode = {}, .own_tokens = 64, .wanted_blocks = 300},
          FeedReady{5, 6},
          FeedRefusal{5, 6, 3, absl::ResourceExhaustedError("blocks: 4 are needed, 3 are free")},
          FeedGo{5, 6},
          FeedCancel{5, 6},
          FeedDone{5, 6, 1 << 30, 7, 64, 0x0123456789abcdef, true},
          FeedEnd{5, absl::UnavailableError("rank 2 died")},
          FeedOffer{5,
                    {~uint64_t{0}, 7},
                    {FirstNumberOf(3)},
                    3,
                    2,
                    1,
                    100,
                    2,
                    3,
                    {"t\0p", 3},
                    {9},
                    1,
                    {0, 70'000},
                    -3,
                    5'000'000},
          FeedWithdraw{5, {~uint64_t{0}, 7}, {FirstNumberOf(3)}},
          FeedOwn{5, 64},
          FeedReserve{5, 1, {~uint64_t{0}, 7}, {FirstNumberOf(3)}, 70'000},
          FeedReserved{5, 1, {1, 2}, {4}, {}, {{7}, {0}}, {"m\0y", 3}},
          FeedReserved{5, 1, {1, 2}, {4}, absl::ResourceExhaustedError("KV blocks: 4"), {}, ""}};
}

TEST(StepFeed, EveryMessageComesAsItWasSent) {
  for (const FeedMessage& message : SomeOfEach()) {
    const absl::StatusOr<FeedMessage> decoded = Decode(Encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, message);
  }
}

TEST(StepFeed, ASteadyStepHasSomeTensOfBytesWhateverTheBatch) {
  EXPECT_LE(Encode(FeedPlan{.epoch = 9, .step = 1'000'000, .mode = {1, 8}}).size(), 16u);
  FeedPlan plan{.epoch = 9, .step = 1'000'000, .mode = {1, 8}};
  plan.added = {{300, {~uint64_t{0}, 7}, {FirstNumberOf(3)}}};
  plan.removed = {120};
  EXPECT_LE(Encode(plan).size(), 40u);
}

TEST(StepFeed, WhatIsCutOffOrTooLongIsRefused) {
  for (const FeedMessage& message : SomeOfEach()) {
    const std::string whole = Encode(message);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      EXPECT_TRUE(absl::IsInvalidArgument(Decode(whole.substr(0, bytes)).status()));
    }
    EXPECT_TRUE(absl::IsInvalidArgument(Decode(whole + '\0').status()));
  }
  EXPECT_EQ(std::string(Decode(std::string(1, '\x0c')).status().message()), "kind: is too large");
}

TEST(StepFeed, NoBytesHarm) {
  std::mt19937 random(3);
  const std::vector<FeedMessage> messages = SomeOfEach();
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Encode(messages[random() % messages.size()]);
    for (uint32_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<FeedMessage> decoded = Decode(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(*Decode(Encode(*decoded)), *decoded);
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
