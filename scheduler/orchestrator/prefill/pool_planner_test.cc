#include "scheduler/orchestrator/prefill/pool_planner.h"

#include <gtest/gtest.h>

#include <memory>

#include "scheduler/plan/latency/builtin_models.h"

namespace skein::scheduler {
namespace {

TEST(PoolLayout, AHostIsCutIntoNodesAndSmallNodesAreFilledUp) {
  const PoolLayout layout = LayOut({{"b", {9}}, {"a", {5}}, {"a", {3}}, {"a", {7}}, {"b", {2}}}, 2);
  const std::vector<InstanceId> slots = {{3}, {5}, {7}, {0}, {2}, {9}};
  EXPECT_EQ(layout.slots, slots);
  EXPECT_EQ(layout.cluster.instances, 6);
  EXPECT_EQ(layout.cluster.nodes(), 3);
  EXPECT_EQ(layout.SlotOf({9}), 5);
  EXPECT_EQ(layout.SlotOf({4}), -1);
  EXPECT_EQ(LayOut({}, 2).slots.size(), 0u);
  EXPECT_EQ(LayOut({{"a", {1}}, {"a", {2}}, {"a", {3}}}, 2).slots.size(), 3u);
}

TEST(RoundToBlocks, BoundariesMoveToTheNearestBlock) {
  PrefillPlan plan;
  plan.chunks = {{30, {0}, 0, 1}, {5, {0, 1}, 1, 2}, {62, {0, 1, 2, 3}, 2, 3}};
  RoundToBlocks(16, &plan);
  ASSERT_EQ(plan.chunks.size(), 2u);  // nothing was left of the second
  EXPECT_EQ(plan.chunks[0].tokens, 32);
  EXPECT_EQ(plan.chunks[1].tokens, 65);
  EXPECT_EQ(plan.chunks[1].instances.size(), 4u);
  plan.chunks = {{95, {0}, 0, 1}, {2, {0, 1}, 1, 2}};
  RoundToBlocks(16, &plan);
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_EQ(plan.chunks[0].tokens, 96);
  EXPECT_EQ(plan.chunks[1].tokens, 1);
  plan.chunks = {{10, {0}, 0, 1}, {5, {0, 1}, 1, 2}};
  RoundToBlocks(16, &plan);  // shorter than a block: the last boundary is its end
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].tokens, 15);
  EXPECT_EQ(plan.chunks[0].instances.size(), 2u);
}

PlanningConfig Config(const char* policy) {
  return {.latency = Llama3_8bA100(), .policy = *Policy::Parse(policy)};
}

TEST(PoolPlanner, PlansAsThePlannerDoes) {
  const auto config = std::make_shared<const PlanningConfig>(Config("tetris"));
  PoolPlanner pool(config);
  std::vector<std::pair<std::string, InstanceId>> by_label;
  for (uint64_t i = 0; i < 16; ++i) by_label.emplace_back(i < 8 ? "a" : "b", InstanceId{i + 1});
  pool.SetLayout(LayOut(by_label, 8), 16);
  std::vector<double> queue_s(16);
  for (size_t i = 0; i < 16; ++i) queue_s[i] = static_cast<double>(i * i % 7);
  for (const int64_t tokens : {int64_t{300}, int64_t{16000}, int64_t{131072}, int64_t{200001}}) {
    PrefillPlan expected = PlanCdsp(config->latency, pool.layout().cluster, queue_s, tokens,
                                    {.improvement_rate = 0.1});
    RoundToBlocks(16, &expected);
    EXPECT_EQ(pool.Plan(queue_s, tokens, 0.1), expected);
    int64_t boundary = 0;
    for (const ChunkPlan& chunk : expected.chunks) {
      EXPECT_EQ(boundary % 16, 0);
      boundary += chunk.tokens;
    }
    EXPECT_EQ(boundary, tokens);
  }
}

TEST(PoolPlanner, NothingIsPlannedOnAnAbsentSlot) {
  for (const char* policy : {"tetris", "single", "greedy", "fixed4", "fixed8"}) {
    const auto config = std::make_shared<const PlanningConfig>(Config(policy));
    PoolPlanner pool(config);
    pool.SetLayout(LayOut({{"a", {1}}, {"a", {2}}, {"a", {3}}, {"b", {4}}, {"b", {5}}}, 4), 16);
    std::vector<double> queue_s = {0, kAbsentQueueS, 3, kAbsentQueueS, 1, 2};
    const auto plan = pool.Plan(queue_s, 100000, 0);
    EXPECT_EQ(plan.has_value(), policy[0] != 'f') << policy;
    if (!plan.has_value()) continue;
    for (const ChunkPlan& chunk : plan->chunks) {
      for (const int slot : chunk.instances) EXPECT_LT(queue_s[static_cast<size_t>(slot)], 100);
    }
  }
}

// A pool of other nodes has other shapes, also for what waits there already.
TEST(PoolPlanner, ItsShapesAreThoseThatItsNodesAllow) {
  const SpCoefficients plain{8e-3, 1e-3, 0, 0};
  PlanningConfig planning = Config("rolling");
  planning.latency = LatencyModel::Make({{1, plain}, {4, plain}},
                                        {{4, 2, {4e-3, 1e-3, 0, 0}}, {4, 4, {2e-3, 1e-3, 0, 0}}})
                         ->Within({.tp_max = 8});
  PoolPlanner pool(std::make_shared<const PlanningConfig>(planning));
  const auto seconds = [&](const std::vector<const char*>& labels) {
    std::vector<std::pair<std::string, InstanceId>> by_label;
    by_label.reserve(labels.size());
    for (const char* label : labels) by_label.emplace_back(label, InstanceId{by_label.size() + 1});
    pool.SetLayout(LayOut(by_label, 8), 16);
    return pool.latency().Seconds(4, 0, 0);
  };
  EXPECT_EQ(seconds({"a", "b", "c", "d"}), 8e-3);
  EXPECT_FALSE(pool.latency().HasShapes());
  for (int64_t request = 1; request <= 9; ++request) pool.rolling()->OnArrival(request, 9000, 0);
  EXPECT_EQ(seconds({"a", "a", "c", "d"}), 4e-3);
  EXPECT_TRUE(pool.rolling()->CheckInvariants().ok());
  EXPECT_EQ(seconds({"a", "a", "a", "d"}), 4e-3) << "a tp is a power of two";
  EXPECT_EQ(seconds({"a", "a", "a", "a", "b"}), 2e-3);
  EXPECT_EQ(seconds({"", "", "", ""}), 8e-3) << "instances that name no node";
  EXPECT_EQ(seconds({"", "", "b", "b"}), 4e-3);
  EXPECT_TRUE(pool.rolling()->CheckInvariants().ok());
  planning.latency = planning.latency.Within({.tp_max = 2});
  EXPECT_EQ(PoolPlanner(std::make_shared<const PlanningConfig>(planning)).latency().limits().tp_max,
            2);
}

TEST(PoolPlanner, AlternativesSayWhyNot) {
  const auto config = std::make_shared<const PlanningConfig>(Config("single"));
  PoolPlanner pool(config);
  std::vector<std::pair<std::string, InstanceId>> by_label;
  for (uint64_t i = 0; i < 8; ++i) by_label.emplace_back("a", InstanceId{i + 1});
  pool.SetLayout(LayOut(by_label, 8), 16);
  std::vector<double> queue_s(8, 0.0);
  queue_s[7] = 60;
  const auto plan = pool.Plan(queue_s, 65536, 0.3);
  PlanExplanation explained{.improvement_rate = 0.3, .ttft_s = plan->ttft_s};
  for (const ChunkPlan& chunk : plan->chunks) {
    explained.chunks.push_back({.tokens = chunk.tokens});
    explained.chunks.back().instances.resize(chunk.instances.size());
  }
  explained.alternatives = pool.Alternatives(queue_s, 65536);
  explained.choice = pool.choice();
  TellWhy(&explained);
  const auto& all = explained.alternatives;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].why, "SP 2 is 49.4 % faster");
  EXPECT_EQ(all[2].why, "chosen") << all[1].why;
  EXPECT_EQ(all[3].why, "not faster than SP 4");
}

TEST(PlanningConfig, WhatIsMissingIsNamed) {
  EXPECT_TRUE(CheckPlanning(Config("fixed8")).ok());
  EXPECT_EQ(CheckPlanning(Config("fixed3")).message(),
            "policy: 'fixed3': the profile has no SP size 3");
  const PlanningConfig large = {.latency = LatencyModel::Make({{2, {0, 1e-3, 0, 0}}}).value()};
  EXPECT_EQ(CheckPlanning(large).message(), "profile: it has no SP size 1");
}

}  // namespace
}  // namespace skein::scheduler
