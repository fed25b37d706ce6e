#include "scheduler/batch/batch_scheduler.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <utility>

namespace skein::scheduler {
namespace {

RequestId Id(uint64_t serial) { return {1, serial}; }

TEST(BatchSchedulerTest, AnEmptySchedulerPlansNothing) {
  BatchScheduler batch({});
  EXPECT_TRUE(batch.Plan().empty());
  EXPECT_FALSE(batch.InFlight());
}

TEST(BatchSchedulerTest, APromptIsCutIntoChunksAndSamplesAfterTheLast) {
  BatchScheduler batch({.max_batch_tokens = 4});
  batch.Add(Id(1), {1}, 10, 0);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(1), 0, 4, false}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(1), 4, 4, false}}));
  batch.Complete();
  EXPECT_EQ(batch.PendingPromptTokens(), 2);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(1), 8, 2, true}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(1), 10, 1, true}}));  // decoding now
}

TEST(BatchSchedulerTest, Invariant3PromptsFillTheStepInPlanOrder) {
  BatchScheduler batch({.max_batch_tokens = 8, .max_slice_tokens = 6});
  batch.Add(Id(1), {20}, 5, 0);
  batch.Add(Id(2), {10}, 9, 0);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 0, 6, false}, {Id(1), 0, 2, false}}));
}

TEST(BatchSchedulerTest, ALongPromptOfOneTenantHoldsUpNoOtherOnes) {
  BatchScheduler batch({.max_batch_tokens = 8, .max_slice_tokens = 8});
  batch.Add(Id(1), {1}, 1000, 0, false, {"long", 1});
  batch.Add(Id(2), {2}, 1000, 0, false, {"long", 1});
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(batch.Plan().front().id, Id(1));
    batch.Complete();
  }
  batch.Plan();
  batch.Add(Id(3), {3}, 12, 0, false, {"short", 1});
  const auto first_of = [&] {
    const StepItem first = batch.Plan().front();
    batch.Complete();
    EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
    return std::pair(first.id.serial, first.count);
  };
  EXPECT_EQ(first_of(), std::pair(uint64_t{3}, int64_t{8}));
  EXPECT_EQ(first_of(), std::pair(uint64_t{3}, int64_t{4}));
  batch.Remove(Id(3));
  EXPECT_EQ(first_of().first, 1U);
}

TEST(BatchSchedulerTest, AStepInWhichAPromptOfATenantBelowItsShareEndsIsShort) {
  BatchScheduler batch({.max_batch_tokens = 512});
  batch.Add(Id(1), {1}, 100'000, 0, false, {"burst", 1});
  for (int step = 0; step < 40; ++step) {
    batch.Plan();
    batch.Complete();
  }
  batch.Add(Id(2), {2}, 600, 0, false, {"quiet", 1});
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 0, 512, false}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(),
            (std::vector<StepItem>{{Id(2), 512, 88, true}, {Id(1), 40 * 512, 40, false}}))
      << "a quarter of the step is full";
  batch.Complete();
  batch.Remove(Id(2));
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(1), 40 * 512 + 40, 512, false}}));
}

// Half as many tokens while only the burst has prompts and another tenant may come back.
TEST(BatchSchedulerTest, StepsAreHalfAsLongWhileATenantBelowItsShareMayComeBack) {
  for (const bool another : {false, true}) {
    BatchScheduler batch({.max_batch_tokens = 512});
    const auto step = [&batch] {
      int64_t tokens = 0;
      for (const StepItem& item : batch.Plan()) {
        tokens += item.count;
        if (item.sample) batch.Remove(item.id);  // it decodes elsewhere
      }
      batch.Complete();
      EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
      return tokens;
    };
    batch.Add(Id(1), {1}, 1'000'000, 0, false, {"burst", 1});
    batch.Add(Id(2), {2}, 100, 0, false, {another ? "quiet" : "burst", 1});
    for (int i = 0; i < 50; ++i) EXPECT_EQ(step(), 512) << "it has not had much more";
    for (int i = 0; i < 150; ++i) step();
    EXPECT_EQ(step(), another ? 256 : 512);
    if (!another) continue;
    batch.Add(Id(3), {3}, 1000, 0, false, {"quiet", 1});
    EXPECT_EQ(step(), 512) << "its own steps are long";
    EXPECT_EQ(step(), 488) << "but for the one in which it ends";
    EXPECT_EQ(step(), 256);
    for (int i = 0; i < 1100; ++i) step();
    EXPECT_EQ(step(), 512) << "it has not come for long";
  }
}

TEST(BatchSchedulerTest, WhatIsComputedInOtherStepsIsChargedToo) {
  BatchScheduler batch({.max_batch_tokens = 8, .max_slice_tokens = 8});
  for (const bool last : {false, true}) {
    batch.Add(Id(1), {1}, 4, 0, false, {"a", 1});
    batch.Add(Id(2), {2}, 4, 0, false, {"b", 1});
    for (const uint64_t serial : {1, 2}) batch.PutLast(Id(serial), last);
    batch.Charge({"a", 1}, 3);
    EXPECT_EQ(batch.Plan().front().id, Id(2)) << last;
    batch.Complete();
    for (const uint64_t serial : {1, 2}) batch.Remove(Id(serial));
  }
}

// Two tenants with prompts for all steps get the same, by weight, up to a slice of each.
TEST(BatchSchedulerTest, TenantsThatComputeAllTheTimeGetTokensByWeight) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    constexpr int64_t kSlice = 20;
    BatchScheduler batch({.max_batch_tokens = 32, .max_slice_tokens = kSlice});
    uint64_t serial = 0;
    std::map<RequestId, bool> of_b;
    const auto add = [&](bool b) {
      of_b[Id(++serial)] = b;
      batch.Add(Id(serial), {1 + random() % 1000}, 1 + static_cast<int64_t>(random() % 300), 0,
                false, b ? FairOwner{"b", 2} : FairOwner{"a", 1});
    };
    for (int i = 0; i < 5; ++i) {
      add(false);
      add(true);
    }
    int64_t a = 0, b = 0;
    for (int step = 0; step < 2000; ++step) {
      for (const StepItem& item : batch.Plan()) {
        const bool to_b = of_b.at(item.id);
        if (item.sample) {
          batch.Remove(item.id);  // it decodes elsewhere
          add(to_b);
        }
        (to_b ? b : a) += item.count;
      }
      batch.Complete();
      ASSERT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
      ASSERT_LE(std::abs(static_cast<double>(a) - static_cast<double>(b) / 2), 2 * kSlice + 2)
          << "seed " << seed << " step " << step;
    }
  }
}

TEST(BatchSchedulerTest, WhatMustBeAloneDecodesInTurnsWithTheOthers) {
  BatchScheduler batch({.max_batch_tokens = 8});
  batch.Add(Id(1), {1}, 4, 3);
  batch.Add(Id(2), {2}, 6, 5, /*alone=*/true);
  batch.Add(Id(3), {3}, 9, 8);
  batch.Add(Id(4), {4}, 9, 8, /*alone=*/true);
  const auto ids = [&] {
    std::vector<uint64_t> step;
    for (const StepItem& item : batch.Plan()) step.push_back(item.id.serial);
    batch.Complete();
    EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
    return step;
  };
  using Ids = std::vector<uint64_t>;
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(ids(), (Ids{1, 3}));
    EXPECT_EQ(ids(), Ids{2});
    EXPECT_EQ(ids(), Ids{4});
  }
  batch.Add(Id(5), {5}, 3, 0);  // a prompt goes with the others
  EXPECT_EQ(ids(), (Ids{1, 3, 5}));
  EXPECT_EQ(ids(), Ids{2});
  EXPECT_EQ(ids(), Ids{4});
  EXPECT_EQ(ids(), (Ids{1, 3, 5}));
}

TEST(BatchSchedulerTest, APromptThatMustBeAloneSharesItsStepsWithNothing) {
  BatchScheduler batch({.max_batch_tokens = 8, .max_slice_tokens = 6});
  batch.Add(Id(1), {10}, 2, 0);
  batch.Add(Id(2), {20}, 9, 0, /*alone=*/true);
  batch.Add(Id(3), {30}, 2, 0);
  batch.Add(Id(4), {1}, 8, 7);  // decodes
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(4), 7, 1, true}, {Id(1), 0, 2, true}}));
  batch.Complete();
  batch.Remove(Id(1));
  EXPECT_TRUE(batch.Plan({20}).size() == 1) << "not its turn: the decoding one runs";
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 0, 6, false}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 6, 3, true}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(4), 9, 1, true}, {Id(3), 0, 2, true}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 9, 1, true}})) << "it decodes alone, too";
}

TEST(BatchSchedulerTest, Invariant3WhatIsPutLastFillsWhatTheOthersLeave) {
  BatchScheduler batch({.max_batch_tokens = 8});
  batch.Add(Id(1), {10}, 9, 0);
  batch.Add(Id(2), {20}, 5, 0);
  batch.Add(Id(3), {30}, 2, 0);
  batch.PutLast(Id(1), true);
  batch.PutLast(Id(9), true);  // unknown
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{
                              {Id(2), 0, 5, true}, {Id(3), 0, 2, true}, {Id(1), 0, 1, false}}));
  batch.PutLast(Id(2), true);  // it is computed
  batch.Complete();
  EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
  for (const uint64_t computed : {2, 3}) batch.Remove(Id(computed));
  batch.Add(Id(4), {40}, 6, 0);
  EXPECT_TRUE(batch.Plan({10}).empty()) << "what is put last is before nothing";
  EXPECT_EQ(batch.Plan({50}), (std::vector<StepItem>{{Id(4), 0, 6, true}}));
  batch.Complete();
  batch.Remove(Id(4));
  batch.PutLast(Id(1), false);
  EXPECT_EQ(batch.Plan({50}), (std::vector<StepItem>{{Id(1), 1, 8, true}}));
  EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
}

TEST(BatchSchedulerTest, DecodeComesFirstButLeavesRoomForPrompts) {
  BatchScheduler batch({.max_batch_tokens = 4, .min_slice_tokens = 2});
  for (uint64_t i = 1; i <= 4; ++i) batch.Add(Id(i), {i}, 8, 7);
  batch.Add(Id(9), {9}, 5, 0);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{
                              {Id(1), 7, 1, true}, {Id(2), 7, 1, true}, {Id(9), 0, 2, false}}));
  batch.Complete();
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{
                              {Id(3), 7, 1, true}, {Id(4), 7, 1, true}, {Id(9), 2, 2, false}}));
}

TEST(BatchSchedulerTest, NoDecodingSequenceStarvesWhenThereAreMoreThanFit) {
  BatchScheduler batch({.max_batch_tokens = 64, .max_batch_sequences = 3});
  std::map<RequestId, int> steps;
  for (uint64_t i = 1; i <= 7; ++i) batch.Add(Id(i), {i}, 2, 1);
  for (int step = 0; step < 70; ++step) {
    for (const StepItem& item : batch.Plan()) ++steps[item.id];
    batch.Complete();
  }
  for (const auto& [id, count] : steps) EXPECT_EQ(count, 30) << ToString(id);
}

TEST(BatchSchedulerTest, RemovalForgetsASequence) {
  BatchScheduler batch({});
  batch.Add(Id(1), {1}, 3, 0);
  batch.Remove(Id(1));
  batch.Remove(Id(1));
  EXPECT_EQ(batch.Size(), 0);
  EXPECT_TRUE(batch.Plan().empty());
}

TEST(BatchSchedulerTest, AStepBehindTheOneInFlightGoesOnFromItsEnd) {
  BatchScheduler batch({.max_batch_tokens = 4, .min_slice_tokens = 2});
  batch.Add(Id(1), {1}, 6, 0);
  batch.Add(Id(2), {2}, 8, 7);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 7, 1, true}, {Id(1), 0, 3, false}}));
  EXPECT_EQ(batch.Known(Id(2)), 9);
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 8, 1, true}, {Id(1), 3, 3, true}}));
  EXPECT_EQ(batch.PendingPromptTokens(), 6) << "none has ended";
  batch.Complete();
  EXPECT_EQ(batch.PendingPromptTokens(), 3);
  EXPECT_TRUE(batch.InFlight(Id(1)));
  EXPECT_EQ(batch.Plan(), (std::vector<StepItem>{{Id(2), 9, 1, true}, {Id(1), 6, 1, true}}));
  EXPECT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
}

TEST(BatchSchedulerTest, ASequenceRemovedInItsStepIsInFlightUntilTheLastOneThatHasIt) {
  BatchScheduler batch({});
  batch.Add(Id(1), {1}, 3, 2);
  batch.Plan();
  batch.Plan();
  batch.Remove(Id(1));
  EXPECT_FALSE(batch.Has(Id(1)));
  batch.Complete();
  EXPECT_TRUE(batch.InFlight(Id(1)));
  EXPECT_TRUE(batch.Plan().empty());
  batch.Complete();
  EXPECT_FALSE(batch.InFlight(Id(1)));
  EXPECT_FALSE(batch.InFlight());
}

TEST(BatchSchedulerDeathTest, ThirdStepInFlight) {
  BatchScheduler batch({});
  batch.Add(Id(1), {1}, 3, 2);
  batch.Plan();
  batch.Plan();
  EXPECT_DEATH(batch.Plan(), "two steps in flight");
}

TEST(BatchSchedulerTest, InvariantsHoldOverARandomHistory) {
  std::mt19937_64 random(3);
  BatchScheduler batch({.max_batch_tokens = 20,
                        .max_batch_sequences = 5,
                        .max_slice_tokens = 9,
                        .min_slice_tokens = 3});
  uint64_t serial = 0;
  std::vector<RequestId> ids;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 3 == 0 && ids.size() < 20) {
      ids.push_back(Id(++serial));
      const int64_t known = 2 + static_cast<int64_t>(random() % 40);
      batch.Add(ids.back(), {random() % 1000}, known, random() % 2 == 0 ? 0 : known - 1);
    }
    EXPECT_EQ(batch.Plan().empty(), ids.empty());
    if (random() % 2 == 0 && batch.InFlight()) batch.Plan();
    ASSERT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
    if (batch.InFlight()) batch.Complete();
    ASSERT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
    if (random() % 4 == 0 && !ids.empty()) {  // in flight or not
      batch.Remove(ids.back());
      ids.pop_back();
    }
    ASSERT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
    if (batch.InFlight()) batch.Complete();
    if (!ids.empty() && random() % 3 == 0) {
      const size_t pick = random() % ids.size();
      batch.Remove(ids[pick]);
      ids.erase(ids.begin() + pick);
    }
    ASSERT_TRUE(batch.CheckInvariants().ok()) << batch.CheckInvariants();
  }
}

}  // namespace
}  // namespace skein::scheduler
