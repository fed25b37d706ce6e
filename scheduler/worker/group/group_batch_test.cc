#include "scheduler/worker/group/group_batch.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace skein::scheduler {
namespace {

constexpr int64_t kTokensPerBlock = 4;

SpecPtr SpecOf(uint64_t serial, int64_t prompt_tokens) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = {7, serial};
  spec->prompt.assign(static_cast<size_t>(prompt_tokens), 1);
  spec->max_tokens = 100;
  return spec;
}

class GroupBatchTest : public ::testing::Test {
 protected:
  // With its first `kv_tokens` tokens in blocks.
  void Offer(uint64_t serial, int64_t prompt_tokens, int64_t kv_tokens = 0) {
    BlockTable blocks;
    if (kv_tokens > 0) {
      blocks = *pool_.Allocate((kv_tokens + kTokensPerBlock - 1) / kTokensPerBlock);
    }
    batch_.Offer({{1}, SpecOf(serial, prompt_tokens), blocks, kv_tokens, {}});
  }
  FeedPlan Plan() { return {.epoch = 1, .step = ++step_, .mode = {1, 2}}; }
  // What each sequence of the step runs, as position + count, and ! where it samples.
  std::vector<std::string> Run(const FeedPlan& plan) {
    const absl::Status prepared = batch_.Prepare(plan);
    EXPECT_TRUE(prepared.ok()) << prepared;
    batch_.Commit();
    return RunCommitted();
  }
  std::vector<std::string> RunCommitted() {
    const std::optional<GroupStep> step = batch_.Begin();
    std::vector<std::string> rows;
    std::vector<int32_t> sampled;
    for (const StepSequence& one : step->sequences) {
      rows.push_back(std::to_string(one.id.serial) + ": " + std::to_string(one.position) + "+" +
                     std::to_string(one.count) + (one.sample ? "!" : ""));
      EXPECT_GE(static_cast<int64_t>(one.blocks->size()) * kTokensPerBlock,
                one.position + one.count);
      if (one.sample) sampled.push_back(9);
    }
    batch_.End(sampled);
    EXPECT_TRUE(batch_.CheckInvariants().ok()) << batch_.CheckInvariants();
    EXPECT_TRUE(pool_.CheckInvariants().ok());
    return rows;
  }
  int64_t Free() const { return pool_.Counts().free; }

  uint64_t step_ = 0;
  BlockPool pool_{20};
  GroupBatch batch_{&pool_, KvLayout{2}, kTokensPerBlock};
};

using Rows = std::vector<std::string>;

TEST_F(GroupBatchTest, APromptRunsInSlicesThenDecodes) {
  Offer(1, 10);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}};
  EXPECT_EQ(Run(plan), Rows{}) << "it lacks more than one token, and no slice names it";
  plan = Plan();
  plan.slices = {{1, 6}};
  EXPECT_EQ(Run(plan), Rows{"1: 0+6"});
  plan = Plan();
  plan.slices = {{1, 4}};
  EXPECT_EQ(Run(plan), Rows{"1: 6+4!"});
  EXPECT_EQ(Run(Plan()), Rows{"1: 10+1!"});
  plan = Plan();
  plan.slices = {{1, 0}};
  EXPECT_EQ(Run(plan), Rows{}) << "it waits";
  EXPECT_EQ(Run(Plan()), Rows{"1: 11+1!"});
  EXPECT_EQ(*batch_.OutputOf(1), (std::vector<int32_t>{9, 9, 9}));
  EXPECT_EQ(Free(), 17) << "12 tokens have KV";
}

TEST_F(GroupBatchTest, AHandedOverSequenceGoesOnWhereItsKvEnds) {
  Offer(1, 9, 8);
  EXPECT_EQ(Free(), 18);
  FeedPlan plan = Plan();
  plan.added = {{5, {7, 1}, {1}}};
  EXPECT_EQ(Run(plan), Rows{"1: 8+1!"});
  plan = Plan();
  plan.removed = {5};
  EXPECT_EQ(Run(plan), Rows{});
  EXPECT_EQ(Free(), 20);
}

TEST_F(GroupBatchTest, APreemptedOneIsComputedAgainWithWhatItSampled) {
  Offer(1, 4, 3);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}};
  Run(plan);
  Run(Plan());
  plan = Plan();
  plan.preempted = {1};
  EXPECT_EQ(Run(plan), Rows{});
  EXPECT_EQ(Free(), 20);
  plan = Plan();
  plan.slices = {{1, 6}};
  EXPECT_EQ(Run(plan), Rows{"1: 0+6!"}) << "prompt and output";
  EXPECT_EQ(batch_.OutputOf(1)->size(), 3u);
}

TEST_F(GroupBatchTest, AShortRankRefusesAndHasChangedNothing) {
  Offer(1, 80);
  Offer(2, 5, 4);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}, {2, {7, 2}, {1}}};
  plan.slices = {{1, 80}};
  const absl::Status refused = batch_.Prepare(plan);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(std::string(refused.message()), "blocks: the step needs 21 more, 19 are free");
  EXPECT_EQ(Free(), 19);
  EXPECT_TRUE(batch_.Members().empty());
  plan.slices = {{1, 72}};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  EXPECT_EQ(Free(), 0);
  EXPECT_FALSE(batch_.Withdraw({7, 1}, {1})) << "the prepared plan has it";
  batch_.Cancel();
  EXPECT_EQ(Free(), 19);
  EXPECT_TRUE(batch_.Members().empty());
  EXPECT_TRUE(batch_.Withdraw({7, 2}, {1}));
  EXPECT_EQ(Free(), 20);
}

TEST_F(GroupBatchTest, APlanMayBeCommittedWhileAStepRuns) {
  Offer(1, 4, 3);
  Offer(2, 4, 3);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}, {2, {7, 2}, {1}}};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  batch_.Commit();
  const std::optional<GroupStep> first = batch_.Begin();
  ASSERT_EQ(first->sequences.size(), 2u);
  FeedPlan second = Plan();
  second.removed = {2};
  ASSERT_TRUE(batch_.Prepare(second).ok());
  batch_.Commit();
  EXPECT_EQ(batch_.Begin(), std::nullopt) << "one step at a time";
  EXPECT_EQ(Free(), 17) << "the step that runs still reads what the next one removes";
  batch_.End({5, 6});
  const std::optional<GroupStep> next = batch_.Begin();
  ASSERT_EQ(next->removed.size(), 1u);
  EXPECT_EQ(next->removed[0].id.serial, 2u);
  ASSERT_EQ(next->sequences.size(), 1u);
  EXPECT_EQ(next->sequences[0].TokenAt(4), 5) << "what the step before sampled";
  EXPECT_EQ(Free(), 18);
  batch_.End({7});
}

TEST_F(GroupBatchTest, PlansThatContradictTheBatchAreRefused) {
  Offer(1, 4, 3);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}};
  Run(plan);
  const auto refused = [&](auto change) {
    FeedPlan bad = Plan();
    change(&bad);
    const absl::Status status = batch_.Prepare(bad);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  EXPECT_EQ(refused([](FeedPlan* p) { p->removed = {2}; }),
            "removed: sequence 2 is not in the batch");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->removed = {1, 1};
            }),
            "removed: sequence 1 is named twice");
  EXPECT_EQ(refused([](FeedPlan* p) { p->removed = p->preempted = {1}; }),
            "preempted: sequence 1 is also removed");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->added = {{1, {7, 1}, {1}}};
            }),
            "added: sequence 1 is not above the handles before it");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->added = {{2, {7, 9}, {1}}};
            }),
            "added: request 7/9 is not held here under epoch 1");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->slices = {{1, 2}};
            }),
            "slices: sequence 1 has fewer tokens to run");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->slices = {{3, 2}};
            }),
            "slices: sequence 3 is not in the batch");
  EXPECT_EQ(refused([](FeedPlan* p) {
              p->mode = {};
              p->slices = {{1, 1}};
            }),
            "slices: sequence 1 is named in a step without prompt slices");
  FeedPlan own = Plan();
  own.mode = {};
  EXPECT_EQ(Run(own), Rows{}) << "in an own step nothing of this batch runs";
}

TEST_F(GroupBatchTest, ASequenceThatFailedRunsOnUntilItIsRemoved) {
  Offer(1, 4, 3);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  batch_.Commit();
  batch_.Begin();
  const uint64_t digest = batch_.End({-1});
  EXPECT_EQ(*batch_.OutputOf(1), std::vector<int32_t>{0});
  EXPECT_EQ(Run(Plan()), Rows{"1: 4+1!"});
  GroupBatch other(&pool_, KvLayout{2}, kTokensPerBlock);
  other.Offer({{1}, SpecOf(1, 4), *pool_.Allocate(1), 3, {}});
  ASSERT_TRUE(other.Prepare(plan).ok());
  other.Commit();
  other.Begin();
  EXPECT_NE(other.End({0}), digest) << "another rank, where it did not fail";
}

// Of 2 tokens a block alone, in a group of 2: half of the blocks, but for the last one of each.
TEST_F(GroupBatchTest, ItsKvIsComparedWithThatOfOneInstanceAlone) {
  constexpr int64_t kAlone = kTokensPerBlock / 2;
  EXPECT_EQ(batch_.Kv(kAlone), BatchKv{});
  Offer(1, 80, 7);
  Offer(2, 16);
  EXPECT_EQ(batch_.Kv(kAlone), (BatchKv{1, 2, 4})) << "KV that has come, of 7 tokens";
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}, {2, {7, 2}, {1}}};
  plan.slices = {{1, 2}, {2, 16}};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  EXPECT_EQ(batch_.Kv(kAlone), (BatchKv{1, 2, 4})) << "the plan is not committed";
  batch_.Commit();
  EXPECT_EQ(batch_.Kv(kAlone), (BatchKv{2, 7, 13})) << "9 and 16 tokens";
  RunCommitted();
  plan = Plan();
  plan.preempted = {2};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  batch_.Commit();
  EXPECT_EQ(batch_.Kv(kAlone), (BatchKv{1, 3, 5})) << "what the step will free does not count";
  EXPECT_EQ(batch_.held_blocks(), 7);
}

TEST_F(GroupBatchTest, DissolvingItFreesAllBlocks) {
  Offer(1, 4, 3);
  Offer(2, 4, 3);
  Offer(3, 4, 3);
  FeedPlan plan = Plan();
  plan.added = {{1, {7, 1}, {1}}, {2, {7, 2}, {1}}};
  Run(plan);
  plan = Plan();
  plan.removed = {1};
  ASSERT_TRUE(batch_.Prepare(plan).ok());
  batch_.Commit();
  ASSERT_TRUE(batch_.Prepare(Plan()).ok());
  EXPECT_EQ(batch_.Dissolve().size(), 3u) << "what a plan removed whose step never began, too";
  EXPECT_EQ(Free(), 20);
  EXPECT_TRUE(pool_.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler
