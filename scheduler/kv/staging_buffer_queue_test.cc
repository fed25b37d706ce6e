#include "scheduler/kv/staging_buffer_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace skein::scheduler {
namespace {

StagingRequest Request(uint64_t serial) { return {{1, serial}, {serial}}; }
constexpr InstanceId kA{1}, kB{2}, kC{3};
constexpr StagingTimes kTimes{.lease_us = 150, .acquire_lease_us = 1000, .hold_us = 150};

TEST(StagingBufferQueue, GivesInTheOrderOfEachRequestsFirstAsking) {
  StagingBufferQueue queue(1, kTimes);
  EXPECT_EQ(queue.Acquire(Request(9), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(5), kA, 1), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(3), kB, 2), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(3), kB, 3), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(5), kA, 4), std::nullopt);
  queue.Finished(Request(9), kA, 5);
  queue.End(Request(9), 5);
  EXPECT_EQ(queue.OwnerOf(0), Request(5));  // before it asks again
  EXPECT_EQ(queue.Acquire(Request(3), kB, 6), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(5), kA, 7), 0);
  EXPECT_TRUE(queue.CheckInvariants().ok());
}

TEST(StagingBufferQueue, ARequestKeepsItsStagingBufferUntilItsLastChunk) {
  StagingBufferQueue queue(1, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 0), std::nullopt);
  queue.Finished(Request(1), kA, 1);  // its next chunk is not computed yet
  EXPECT_EQ(queue.Acquire(Request(2), kB, 2), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(1), kC, 3), 0);
  queue.End(Request(1), 4);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 4), std::nullopt);  // kC may still write
  queue.Finished(Request(1), kC, 5);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 5), 0);
}

TEST(StagingBufferQueue, AnEarlierRequestsLaterWriterComesBeforeALaterRequest) {
  StagingBufferQueue queue(2, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(2), kA, 0), 1);
  EXPECT_EQ(queue.Acquire(Request(3), kC, 1), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(1), kB, 2), std::nullopt);
  queue.Finished(Request(2), kA, 3);
  queue.End(Request(2), 3);
  EXPECT_EQ(queue.Acquire(Request(3), kC, 4), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(1), kB, 4), 1);
}

TEST(StagingBufferQueue, AskingAgainGivesTheSameStagingBuffer) {
  StagingBufferQueue queue(2, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 1), 0);
  EXPECT_EQ(queue.free(), 1);
}

TEST(StagingBufferQueue, AWriterThatIsSilentLosesItAfterItsLease) {
  StagingBufferQueue queue(1, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 0), std::nullopt);
  EXPECT_TRUE(queue.Renew(Request(1), kA, 90));
  queue.Tick(239);
  EXPECT_EQ(queue.WriterOf(0), kA);
  EXPECT_EQ(queue.NextDeadline(), 240);
  queue.Tick(240);
  EXPECT_EQ(queue.WriterOf(0), std::nullopt);
  EXPECT_FALSE(queue.Renew(Request(1), kA, 241));
  queue.Tick(390);  // its request has had no writer for hold_us
  EXPECT_EQ(queue.OwnerOf(0), Request(2));
}

TEST(StagingBufferQueue, AnEndedRequestIsTakenAsDeadAfterItsLease) {
  StagingBufferQueue queue(1, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  queue.End(Request(1), 1);
  EXPECT_EQ(queue.Acquire(Request(1), kB, 2), std::nullopt);  // it has ended
  EXPECT_EQ(queue.waiting(), 0);
  queue.Tick(150);
  EXPECT_EQ(queue.free(), 1);
  EXPECT_TRUE(queue.CheckInvariants().ok());
}

TEST(StagingBufferQueue, AWishThatIsNotRepeatedIsForgottenItsPlaceIsNot) {
  StagingBufferQueue queue(1, {.lease_us = 10000, .acquire_lease_us = 10});
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0), 0);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 1), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(3), kB, 2), std::nullopt);
  queue.Tick(20);
  EXPECT_EQ(queue.waiting(), 0);
  EXPECT_EQ(queue.Acquire(Request(3), kB, 21), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 22), std::nullopt);
  queue.Finished(Request(1), kA, 23);
  queue.End(Request(1), 23);
  EXPECT_EQ(queue.OwnerOf(0), Request(2));
}

TEST(StagingBufferQueue, CallsThatComeLateOrTwiceTouchOnlyTheirOwnWish) {
  StagingBufferQueue queue(1, kTimes);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0, 1), 0);
  EXPECT_EQ(queue.Acquire(Request(1), kB, 0, 1), std::nullopt);
  queue.Finished(Request(1), kA, 1, 1);
  EXPECT_EQ(queue.WriterOf(0), kB);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 2, 1), std::nullopt);  // a duplicate of the first call
  EXPECT_EQ(queue.waiting(), 0);
  EXPECT_EQ(queue.Acquire(Request(1), kA, 3, 2), std::nullopt);
  EXPECT_EQ(queue.waiting(), 1);
  queue.Finished(Request(1), kB, 4, 1);
  EXPECT_EQ(queue.WriterOf(0), kA);
  queue.Finished(Request(1), kA, 5, 1);  // for its first acquisition
  EXPECT_EQ(queue.BufferOf(Request(1), kA), 0);
  queue.Finished(Request(1), kA, 6, 2);
  EXPECT_EQ(queue.BufferOf(Request(1), kA), std::nullopt);
  EXPECT_TRUE(queue.CheckInvariants().ok());
}

TEST(StagingBufferQueue, WhatIsHeldButNotUsedIsLentOnAndFirstInLineForItAgain) {
  StagingBufferQueue queue(1, {.lease_us = 1000, .acquire_lease_us = 1000, .hold_us = 20});
  EXPECT_EQ(queue.Acquire(Request(1), kA, 0, 1), 0);
  EXPECT_EQ(queue.Acquire(Request(2), kB, 1, 1), std::nullopt);
  EXPECT_EQ(queue.Acquire(Request(3), kC, 1, 1), std::nullopt);
  queue.Finished(Request(1), kA, 2, 1);
  EXPECT_EQ(queue.NextDeadline(), 22);
  queue.Tick(22);
  EXPECT_EQ(queue.OwnerOf(0), Request(2));
  EXPECT_EQ(queue.Acquire(Request(1), kA, 23, 2), std::nullopt);
  queue.Finished(Request(2), kB, 24);
  queue.End(Request(2), 24);
  EXPECT_EQ(queue.OwnerOf(0), Request(1));
}

// Random requests with random writers, some of which die: every request is served, in order.
TEST(StagingBufferQueue, RandomWritersAllComeToTheirTurn) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    StagingBufferQueue queue(1 + static_cast<int>(random() % 3), kTimes);
    struct State {
      std::vector<InstanceId> open;  // writers that have not finished
      bool asked = false;
      bool had = false;
    };
    std::map<uint64_t, State> requests;
    for (uint64_t serial = 1; serial <= 16; ++serial) {
      for (uint64_t writer = 1; writer <= 1 + random() % 8; ++writer) {
        requests[serial].open.push_back({writer});
      }
    }
    std::vector<uint64_t> first_asked, first_had;
    TimeUs now = 0;
    for (int round = 0; round < 100000 && !requests.empty(); ++round) {
      now += static_cast<TimeUs>(random() % 20);
      auto it = std::next(requests.begin(), static_cast<int64_t>(random() % requests.size()));
      auto& [serial, state] = *it;
      const size_t index = random() % state.open.size();
      if (!state.asked) first_asked.push_back(serial);
      state.asked = true;
      const auto buffer = queue.Acquire(Request(serial), state.open[index], now);
      for (int b = 0; b < queue.buffers(); ++b) {
        const auto owner = queue.OwnerOf(b);
        if (!owner.has_value() || !requests.contains(owner->id.serial)) continue;
        State& owning = requests[owner->id.serial];
        if (!owning.had) first_had.push_back(owner->id.serial);
        owning.had = true;
      }
      if (round % 7 == 0) {
        ASSERT_TRUE(queue.CheckInvariants().ok());
      }
      if (!buffer.has_value()) continue;
      // Finished, or dead without a message; then its request is given up.
      const bool dies = random() % 20 == 0;
      if (!dies) queue.Finished(Request(serial), state.open[index], now);
      state.open.erase(state.open.begin() + static_cast<int64_t>(index));
      if (!dies && !state.open.empty()) continue;
      queue.End(Request(serial), now);
      requests.erase(it);
    }
    EXPECT_TRUE(requests.empty());
    queue.Tick(now + 1000);
    EXPECT_EQ(queue.free(), queue.buffers());
  }
}

}  // namespace
}  // namespace skein::scheduler
