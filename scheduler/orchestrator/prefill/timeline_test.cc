#include "scheduler/orchestrator/prefill/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace skein::scheduler {
namespace {

TimelineChunk Chunk(uint64_t sequence, size_t index, std::vector<int> slots, double seconds) {
  return {.key = {{sequence}, index},
          .request = {7, sequence},
          .plan = {sequence * 10},
          .slots = std::move(slots),
          .seconds = seconds};
}

TEST(Timeline, ChunksRunInSequenceOrderAndRunningOnesAreCorrected) {
  Timeline timeline(4);
  timeline.Add(Chunk(1, 0, {0}, 3));
  timeline.Add(Chunk(1, 1, {0, 1}, 2));
  timeline.Add(Chunk(2, 0, {0, 1}, 1));
  timeline.Add(Chunk(3, 0, {2}, 5));
  timeline.Begin({{1}, 0}, 8 * kSecondUs);  // two seconds ago
  timeline.Begin({{3}, 0}, 0);              // late
  const auto queue_s = [&](TimeUs now) {
    std::vector<double> all;
    for (size_t slot = 0; slot < 4; ++slot) all.push_back(timeline.QueueSeconds(slot, now));
    return all;
  };
  EXPECT_EQ(queue_s(10 * kSecondUs), (std::vector<double>{4, 4, 0, 0}));
  EXPECT_EQ(queue_s(20 * kSecondUs), (std::vector<double>{3, 3, 0, 0}));  // all but chunk 0 to come
  timeline.Remove({{1}, 0});
  timeline.Add(Chunk(4, 0, {1, 3}, 7));
  EXPECT_EQ(queue_s(20 * kSecondUs), (std::vector<double>{3, 10, 0, 10}));
  timeline.Drop({10});
  EXPECT_EQ(queue_s(20 * kSecondUs), (std::vector<double>{1, 8, 0, 8}));
}

TEST(Timeline, ReadyIsWhatNothingIsInFrontOf) {
  Timeline timeline(3);
  timeline.Add(Chunk(1, 0, {0}, 1));
  timeline.Add(Chunk(1, 1, {0, 1}, 1));
  timeline.Add(Chunk(2, 0, {1, 2}, 1));
  timeline.Add(Chunk(3, 0, {}, 1));  // its instance is gone
  using Ids = std::vector<RequestId>;
  EXPECT_EQ(timeline.TakeReady(), (Ids{{7, 1}, {7, 3}}));
  timeline.Begin({{1}, 0}, 5);
  timeline.Begin({{3}, 0}, 5);
  EXPECT_EQ(timeline.TakeReady(), Ids{});
  timeline.Remove({{1}, 0});
  EXPECT_EQ(timeline.TakeReady(), (Ids{{7, 1}}));
  EXPECT_EQ(timeline.TakeReady(), Ids{});  // told once
  timeline.Recheck({{1}, 1});
  timeline.Recheck({{2}, 0});  // is behind it
  timeline.Recheck({{9}, 0});  // is unknown
  EXPECT_EQ(timeline.TakeReady(), (Ids{{7, 1}}));
  timeline.Drop({10});
  EXPECT_EQ(timeline.TakeReady(), (Ids{{7, 2}}));
}

// Word for word: chunk after chunk, from now.
std::vector<double> EstimatedOneByOne(const std::vector<TimelineChunk>& chunks, size_t slots,
                                      TimeUs now) {
  std::vector<double> free_s(slots);
  std::map<Epoch, double> plan_end_s;
  for (const TimelineChunk& chunk : chunks) {
    double start_s = plan_end_s[chunk.plan];
    for (const int slot : chunk.slots) start_s = std::max(start_s, free_s[slot]);
    double end_s = start_s + chunk.seconds;
    if (chunk.running_since_us != kNever) {
      end_s =
          std::max(0.0, chunk.seconds - static_cast<double>(now - chunk.running_since_us) * 1e-6);
    }
    plan_end_s[chunk.plan] = end_s;
    for (const int slot : chunk.slots) free_s[slot] = std::max(free_s[slot], end_s);
  }
  return free_s;
}

std::vector<RequestId> ReadyOneByOne(const std::vector<TimelineChunk>& chunks, size_t slots) {
  std::vector<RequestId> ready;
  std::vector<bool> taken(slots);
  std::set<Epoch> begun;
  for (const TimelineChunk& chunk : chunks) {
    bool free = begun.insert(chunk.plan).second;
    for (const int slot : chunk.slots) {
      free = free && !taken[slot];
      taken[slot] = true;
    }
    if (free && chunk.running_since_us == kNever) ready.push_back(chunk.request);
  }
  return ready;
}

TEST(Timeline, APassOfManyStepsEndsAtTheExactTimesAndKnowsFreeSlotsAtOnce) {
  constexpr size_t kSlots = 4;
  Timeline bounded(kSlots, /*looks_max=*/8);
  Timeline exact(kSlots, /*looks_max=*/1'000'000);
  const auto both = [&](auto change) {
    change(bounded);
    change(exact);
  };
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
    const int slot = static_cast<int>(sequence % 3);
    both([&](Timeline& one) { one.Add(Chunk(sequence, 0, {slot, 3}, 1)); });
  }
  const TimeUs now = 50 * kSecondUs;
  EXPECT_TRUE(bounded.exact());
  EXPECT_DOUBLE_EQ(bounded.QueueSeconds(3, now), 100);
  both([&](Timeline& one) { one.Begin({{1}, 0}, now); });
  both([&](Timeline& one) { one.Remove({{2}, 0}); });
  EXPECT_DOUBLE_EQ(exact.QueueSeconds(3, now), 99);
  EXPECT_DOUBLE_EQ(bounded.QueueSeconds(3, now),
                   100);  // the pass has only begun
  // Each change takes the pass on; what it has not come by yet does not make it
  // start again.
  int changes = 0;
  for (; !bounded.exact() && changes < 1000; ++changes) {
    both([&](Timeline& one) { one.Begin({{100}, 0}, now + changes); });
    bounded.QueueSeconds(3, now);
  }
  EXPECT_GT(changes, 10);
  EXPECT_LT(changes, 100);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_DOUBLE_EQ(bounded.QueueSeconds(slot, now), exact.QueueSeconds(slot, now));
  }
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
    if (sequence % 3 == 1) both([&](Timeline& one) { one.Drop({sequence * 10}); });
  }
  EXPECT_EQ(bounded.QueueSeconds(1, now), 0);  // though the pass is not complete
}

TEST(Timeline, IsWhatOneByOneEstimatesAfterAnything) {
  std::mt19937_64 random(1);
  const auto draw = [&](uint64_t below) { return random() % below; };
  for (int round = 0; round < 200; ++round) {
    const size_t slots = 1 + draw(6);
    Timeline timeline(slots, /*looks_max=*/1'000'000);
    TimeUs now = static_cast<TimeUs>(draw(1000)) * kSecondUs;
    for (uint64_t sequence = 1; sequence <= 60; ++sequence) {
      for (size_t index = 0; index <= draw(3); ++index) {
        std::vector<int> on;
        for (size_t slot = 0; slot < slots; ++slot) {
          if (draw(2) == 0) on.push_back(static_cast<int>(slot));
        }
        TimelineChunk chunk = Chunk(sequence, index, on, 0.001 * static_cast<double>(draw(4000)));
        if (draw(4) == 0) chunk.plan = {10 * (1 + draw(sequence))};  // a chunk that comes later
        timeline.Add(chunk);
      }
      std::vector<TimelineChunk> chunks = timeline.Chunks();
      const TimelineChunk& one = chunks[draw(chunks.size())];
      const uint64_t what = draw(4);
      if (what == 0) timeline.Begin(one.key, now - static_cast<TimeUs>(draw(3 * kSecondUs)));
      if (what == 1) timeline.Remove(one.key);
      if (what == 2 && draw(3) == 0) timeline.Drop(one.plan);
      now += static_cast<TimeUs>(draw(kSecondUs));
      chunks = timeline.Chunks();
      ASSERT_TRUE(timeline.CheckInvariants().ok()) << timeline.CheckInvariants();
      const std::vector<double> expected = EstimatedOneByOne(chunks, slots, now);
      for (size_t slot = 0; slot < slots; ++slot) {
        ASSERT_NEAR(timeline.QueueSeconds(slot, now), expected[slot], 1e-9);
      }
      for (const TimelineChunk& each : chunks) timeline.Recheck(each.key);
      ASSERT_EQ(timeline.TakeReady(), ReadyOneByOne(chunks, slots));
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
