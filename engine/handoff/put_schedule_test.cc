#include "engine/handoff/put_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

constexpr int kLayers = 2;
constexpr int64_t kBlockTokens = 4;
constexpr HandoffKey kKey = {1, 2, 3};

PutSchedule::Time At(int64_t us) { return PutSchedule::Time(std::chrono::microseconds(us)); }

std::vector<HandoffBlock> Blocks(int64_t count) {
  std::vector<HandoffBlock> blocks;
  for (int64_t i = 0; i < count; ++i) blocks.push_back({i, {static_cast<int32_t>(10 + i)}});
  return blocks;
}

class PutScheduleTest : public ::testing::Test {
 protected:
  PutSchedule::Work Take() {
    PutSchedule::Work work = schedule_.Take(At(now_));
    EXPECT_TRUE(schedule_.CheckInvariants().ok()) << schedule_.CheckInvariants();
    return work;
  }
  void Written(int64_t token_end) {
    for (int layer = 0; layer < kLayers; ++layer) schedule_.Written(kKey, layer, token_end);
  }
  void Grant(PutSchedule::Terms terms) {
    terms.post_until = At(1000);
    schedule_.Grant(kKey, terms, At(now_));
  }
  void Ended(const std::vector<PutSchedule::Put>& puts, const absl::Status& status = {}) {
    for (const PutSchedule::Put& put : puts) schedule_.PutEnded(put.number, status, At(now_));
  }

  int64_t now_ = 0;
  PutSchedule schedule_{kLayers, kBlockTokens};
};

TEST_F(PutScheduleTest, BlocksArePutWhenTheyAreWholeAndOnce) {
  schedule_.Open(kKey, Blocks(2), 7, /*more=*/false);
  EXPECT_FALSE(schedule_.Written(kKey, 0, 4)) << "not granted";
  Grant({.ranks = 2});
  auto work = Take();
  ASSERT_EQ(work.puts.size(), 2u) << "layer 0 at each rank";
  EXPECT_EQ(work.puts[1].rank, 1);
  ASSERT_EQ(work.puts[0].blocks.size(), 1u);
  EXPECT_EQ(work.puts[0].blocks[0].block.local.value, 10);
  EXPECT_TRUE(Take().puts.empty());
  Written(6);
  auto more = Take();
  EXPECT_EQ(more.puts.size(), 2u) << "the first block of layer 1";
  Written(7);
  auto last = Take();
  EXPECT_EQ(last.puts.size(), 4u);
  Ended(work.puts);
  Ended(more.puts);
  EXPECT_TRUE(Take().ends.empty());
  Ended(last.puts);
  work = Take();
  ASSERT_EQ(work.ends.size(), 1u);
  EXPECT_EQ(work.ends[0].verdict, PutSchedule::Verdict::kDone);
  EXPECT_EQ(work.ends[0].blocks, (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(schedule_.IsOpen(kKey));
}

TEST_F(PutScheduleTest, AShareThatGrowsIsDoneWithItsLastBlocks) {
  schedule_.Open(kKey, {}, 8, /*more=*/true);
  Grant({});
  EXPECT_TRUE(Take().ends.empty());
  schedule_.Add(kKey, Blocks(1), /*more=*/true);
  Written(4);
  Ended(Take().puts);
  EXPECT_TRUE(Take().ends.empty());
  schedule_.Add(kKey, {}, /*more=*/false);
  EXPECT_EQ(Take().ends.size(), 1u);
}

TEST_F(PutScheduleTest, ARefusedPutIsMadeAgain) {
  schedule_.Open(kKey, Blocks(2), 8, /*more=*/false);
  Written(8);
  Grant({});
  auto work = Take();
  ASSERT_EQ(work.puts.size(), 2u);
  schedule_.PutRefused(work.puts[0].number);
  schedule_.PutEnded(work.puts[1].number, {}, At(now_));
  work = Take();
  ASSERT_EQ(work.puts.size(), 1u);
  EXPECT_EQ(work.puts[0].blocks.size(), 2u);
  EXPECT_EQ(work.puts[0].blocks[0].layer, 0);
  Ended(work.puts);
  EXPECT_EQ(Take().ends.size(), 1u);
}

// A prompt may be computed before there is a grant, given up, and computed again elsewhere.
TEST_F(PutScheduleTest, OpenedAnewBeforeItsGrantItKnowsNothingOfBefore) {
  schedule_.Open(kKey, Blocks(2), 8, /*more=*/false);
  Written(8);
  schedule_.Open(kKey, {{0, {20}}, {1, {21}}}, 8, /*more=*/false);
  Grant({});
  EXPECT_TRUE(Take().puts.empty());
  Written(8);
  const auto work = Take();
  ASSERT_EQ(work.puts.size(), 2u);
  EXPECT_EQ(work.puts[0].blocks.at(0).block.local.value, 20);
  Ended(work.puts);
  EXPECT_EQ(Take().ends.at(0).blocks, (std::vector<int64_t>{2, 2}));
}

TEST_F(PutScheduleTest, NothingIsPutAfterTheLease) {
  schedule_.Open(kKey, Blocks(1), 4, /*more=*/false);
  Grant({});
  schedule_.Extend(kKey, At(2000));
  now_ = 2000;
  EXPECT_TRUE(Take().ends.empty()) << "nothing is to be put";
  Written(4);
  const auto work = Take();
  EXPECT_TRUE(work.puts.empty());
  ASSERT_EQ(work.ends.size(), 1u);
  EXPECT_EQ(work.ends[0].failure.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(PutScheduleTest, AnEndWaitsForWhatIsUnderWay) {
  schedule_.Open(kKey, Blocks(1), 4, /*more=*/false);
  Written(4);
  Grant({});
  const auto puts = Take().puts;
  schedule_.Stop(kKey);
  auto work = Take();
  EXPECT_EQ(work.cancels.size(), 2u);
  EXPECT_TRUE(work.ends.empty());
  Ended(puts, absl::CancelledError("stopped"));
  work = Take();
  ASSERT_EQ(work.ends.size(), 1u);
  EXPECT_EQ(work.ends[0].verdict, PutSchedule::Verdict::kStopped);
}

TEST_F(PutScheduleTest, AFailedPutFailsTheHandoffAndCancelsTheOthers) {
  schedule_.Open(kKey, Blocks(1), 4, /*more=*/false);
  Written(4);
  Grant({});
  const auto puts = Take().puts;
  schedule_.PutEnded(puts[0].number, absl::UnavailableError("gone"), At(now_));
  EXPECT_EQ(Take().cancels, (std::vector<uint64_t>{puts[1].number}));
  schedule_.PutEnded(puts[1].number, absl::CancelledError(""), At(now_));
  const auto work = Take();
  ASSERT_EQ(work.ends.size(), 1u);
  EXPECT_EQ(work.ends[0].failure.message(), "gone");
}

TEST_F(PutScheduleTest, ABufferIsWaitedForOnceAndGivenBackWhenItIsIdle) {
  schedule_.Open(kKey, Blocks(2), 8, /*more=*/false);
  Grant({.staging_slots = 2, .idle_after = std::chrono::microseconds(50)});
  EXPECT_TRUE(Take().waits.empty()) << "there is nothing to put";
  schedule_.Written(kKey, 0, 8);
  EXPECT_EQ(Take().waits.size(), 1u);
  EXPECT_TRUE(Take().waits.empty());
  schedule_.UseBuffer(kKey, At(now_));
  auto puts = Take().puts;
  ASSERT_EQ(puts.size(), 1u);
  ASSERT_EQ(puts[0].blocks.size(), 2u);
  schedule_.Written(kKey, 1, 8);
  EXPECT_TRUE(Take().puts.empty()) << "no slot is free";
  Ended(puts);
  const auto part = Take().parts;
  ASSERT_EQ(part.size(), 1u);
  const std::vector<int32_t> slots = {part[0].blocks[0].slot, part[0].blocks[1].slot};
  EXPECT_TRUE(Take().puts.empty()) << "the slots were not taken";
  now_ = 10;
  schedule_.Taken(kKey, slots, {}, At(now_));
  puts = Take().puts;
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_EQ(puts[0].blocks[0].layer, 1);
  schedule_.PutRefused(puts[0].number);
  puts = Take().puts;
  ASSERT_EQ(puts.size(), 1u) << "both slots are free again";
  EXPECT_EQ(puts[0].blocks.size(), 2u);
  EXPECT_EQ(schedule_.NextIdle(), PutSchedule::Time::max());
}

TEST_F(PutScheduleTest, AnIdleBufferIsGivenBackAndAnotherWaitedFor) {
  schedule_.Open(kKey, Blocks(1), 4, /*more=*/false);
  Grant({.staging_slots = 1, .has_buffer = true, .idle_after = std::chrono::microseconds(50)});
  Take();
  EXPECT_EQ(schedule_.NextIdle(), At(50));
  now_ = 49;
  EXPECT_TRUE(Take().idle.empty());
  now_ = 50;
  EXPECT_EQ(Take().idle.size(), 1u);
  EXPECT_FALSE(schedule_.HasBuffer(kKey));
  schedule_.Written(kKey, 0, 4);
  EXPECT_EQ(Take().waits.size(), 1u);
}

// Whatever comes in whatever order: each block of each layer arrives once.
TEST_F(PutScheduleTest, AnyOrderPutsEachBlockOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto coin = [&random] { return random() % 2 == 0; };
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 30);
    const int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    const bool staged = coin();
    schedule_.Open(kKey, Blocks(blocks), tokens, false);
    const PutSchedule::Terms terms{.staging_slots = staged ? 3 : 0, .has_buffer = staged};
    bool granted = false;
    std::vector<int64_t> written(kLayers);
    std::vector<PutSchedule::Put> under_way;
    std::vector<PutSchedule::Part> parts;
    std::set<std::pair<int, int64_t>> arrived;
    bool over = false;
    for (int i = 0; i < 10000 && !over; ++i) {
      if (!granted && coin()) {
        Grant(terms);
        granted = true;
      }
      const auto layer = static_cast<size_t>(random() % kLayers);
      written[layer] =
          std::min<int64_t>(tokens, written[layer] + static_cast<int64_t>(random() % 5));
      schedule_.Written(kKey, static_cast<int>(layer), written[layer]);
      auto work = Take();
      for (PutSchedule::Put& put : work.puts) {
        if (coin()) {
          schedule_.PutRefused(put.number);
        } else {
          for (const auto& block : put.blocks) {
            EXPECT_TRUE(arrived.insert({block.layer, block.block.global}).second) << "twice";
          }
          under_way.push_back(std::move(put));
        }
      }
      for (auto& part : work.parts) parts.push_back(std::move(part));
      over = !work.ends.empty();
      if (!under_way.empty() && coin()) {
        schedule_.PutEnded(under_way.back().number, {}, At(now_));
        under_way.pop_back();
      }
      if (!parts.empty() && coin()) {
        std::vector<int32_t> slots;
        for (const StagedBlock& block : parts.back().blocks) slots.push_back(block.slot);
        schedule_.Taken(kKey, slots, {}, At(now_));
        parts.pop_back();
      }
    }
    ASSERT_TRUE(over) << "seed " << seed;
    EXPECT_EQ(static_cast<int64_t>(arrived.size()), blocks * kLayers) << "seed " << seed;
  }
}

}  // namespace
}  // namespace skein::engine
