#include "scheduler/plan/cdsp/cdsp_planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/oracle/exhaustive.h"
#include "scheduler/plan/testing/plan_check.h"
#include "scheduler/plan/testing/reference_planner.h"

namespace skein::scheduler {
namespace {

// Extends LLaMA3-8B's sizes: the constant doubles and the rest halves.
LatencyModel Extended(int max_sp) {
  std::map<int, SpCoefficients> sizes;
  for (int sp = 1; sp <= max_sp; sp *= 2) {
    if (sp <= 16) {
      sizes[sp] = Llama3_8bA100().CoefficientsAt(Llama3_8bA100().IndexOf(sp));
    } else {
      const SpCoefficients& half = sizes[sp / 2];
      sizes[sp] = {half.a_s * 2, half.b_s_per_token / 2, half.c_s_per_token2 / 2,
                   half.d_s_per_token2 / 2};
    }
  }
  return *LatencyModel::Make(sizes);
}

struct State {
  int64_t prompt_tokens;
  std::vector<double> queue_s;
  PlanOptions options;
};

// Cluster states: all idle, mostly idle, uniform, or equal within a node; prompts of 1 ... 1M
// tokens.
class States {
 public:
  explicit States(uint64_t seed) : random_(seed) {}

  double Unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  State Draw(const Cluster& cluster) {
    State state;
    state.prompt_tokens = static_cast<int64_t>(std::exp2(Unit() * 20));
    const int kind = static_cast<int>(random_() % 4);
    const double max_s = std::exp2(Unit() * 8 - 3);
    double of_node = 0;
    for (int i = 0; i < cluster.instances; ++i) {
      if (i % cluster.node_size == 0) of_node = Unit() * max_s;
      const double values[] = {0, Unit() < 0.5 ? 0 : Unit() * max_s, Unit() * max_s, of_node};
      state.queue_s.push_back(values[kind]);
    }
    const double rates[] = {0, 0, 0.05, 0.3, 0.7};
    state.options.improvement_rate = rates[random_() % 5];
    state.options.min_chunk_tokens = random_() % 2 == 0 ? 256 : 1;
    return state;
  }

 private:
  std::mt19937_64 random_;
};

const Cluster kClusters[] = {{1, 8},   {8, 8}, {16, 8}, {16, 4},  {14, 6},  {10, 4},
                             {3, 8},   {5, 1}, {7, 3},  {64, 64}, {128, 8}, {100, 8},
                             {33, 16}, {6, 4}, {20, 5}, {13, 8},  {256, 32}};

TEST(CdspPlannerTest, PlansAreLegalAndNeverWorseThanASingleChunk) {
  const LatencyModel model = Extended(128);
  States states(1);
  for (const Cluster& cluster : kClusters) {
    CdspPlanner planner(model, cluster);
    for (int i = 0; i < 300; ++i) {
      State state = states.Draw(cluster);
      SCOPED_TRACE(testing::Message() << cluster.instances << "/" << cluster.node_size << " " << i);
      PrefillPlan single, paper, wide;
      planner.PlanSingleChunk(state.queue_s, state.prompt_tokens, state.options, &single);
      planner.Plan(state.queue_s, state.prompt_tokens, state.options, &paper);
      state.options.scope = PlanScope::kWide;
      planner.Plan(state.queue_s, state.prompt_tokens, state.options, &wide);
      for (const PrefillPlan* plan : {&single, &paper, &wide}) {
        const absl::Status check =
            CheckPlan(model, cluster, state.queue_s, state.prompt_tokens, *plan);
        ASSERT_TRUE(check.ok()) << check;
      }
      EXPECT_EQ(single.chunks.size(), 1u);
      EXPECT_LE(paper.ttft_s, single.ttft_s);
      EXPECT_LE(wide.ttft_s, paper.ttft_s);
    }
  }
}

TEST(CdspPlannerTest, TheSingleChunksOfAPlanAreThoseThatItsInputHas) {
  const LatencyModel model = Extended(128);
  States states(2);
  for (const Cluster& cluster : kClusters) {
    CdspPlanner planner(model, cluster);
    for (int i = 0; i < 50; ++i) {
      State state = states.Draw(cluster);
      state.options.scope = i % 2 == 0 ? PlanScope::kPaper : PlanScope::kWide;
      PrefillPlan plan;
      planner.Plan(state.queue_s, state.prompt_tokens, state.options, &plan);
      const std::vector<CdspPlanner::SingleChunk> last = planner.LastSingleChunks();
      const auto asked = planner.SingleChunks(state.queue_s, state.prompt_tokens);
      ASSERT_EQ(last.size(), asked.size());
      for (size_t k = 0; k < last.size(); ++k) {
        EXPECT_EQ(last[k].sp, asked[k].sp);
        EXPECT_EQ(last[k].start_s, asked[k].start_s);
        EXPECT_EQ(last[k].ttft_s, asked[k].ttft_s);
      }
    }
  }
}

TEST(CdspPlannerTest, EveryChunkStartsAsSoonAsItsInstancesAreFreeAndIsLongEnough) {
  const LatencyModel model = Extended(32);
  States states(8);
  int chunked = 0;
  std::vector<Cluster> clusters(std::begin(kClusters), std::end(kClusters));
  for (int i = 0; i < 10; ++i) clusters.push_back(i % 2 == 0 ? Cluster{40, 5} : Cluster{36, 6});
  for (const Cluster& cluster : clusters) {
    for (int i = 0; i < 100; ++i) {
      State state = states.Draw(cluster);
      state.prompt_tokens = static_cast<int64_t>(std::exp2(15 + 5 * states.Unit()));
      state.options.min_chunk_tokens = 1 + state.prompt_tokens / 3;
      state.options.scope = i % 2 == 0 ? PlanScope::kPaper : PlanScope::kWide;
      const PrefillPlan plan =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      double free_s = 0;
      for (const ChunkPlan& chunk : plan.chunks) {
        for (const int instance : chunk.instances) {
          free_s = std::max(free_s, state.queue_s[static_cast<size_t>(instance)]);
        }
        EXPECT_NEAR(chunk.start_s, free_s, 1e-9) << cluster.instances << " " << i;
        free_s = chunk.end_s;
        if (plan.chunks.size() == 1) continue;
        ++chunked;
        EXPECT_GE(chunk.tokens, state.options.min_chunk_tokens);
      }
    }
  }
  EXPECT_GT(chunked, 100);
}

TEST(CdspPlannerTest, EqualInputGivesEqualOutputWhateverWasPlannedBefore) {
  const LatencyModel model = Extended(64);
  const Cluster cluster{64, 8};
  CdspPlanner planner(model, cluster);
  States states(2);
  for (int i = 0; i < 200; ++i) {
    State state = states.Draw(cluster);
    if (i % 2 == 0) state.options.scope = PlanScope::kWide;
    PrefillPlan plan;
    planner.Plan(state.queue_s, state.prompt_tokens, state.options, &plan);
    EXPECT_EQ(plan, PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options));
  }
}

TEST(CdspPlannerTest, EqualsThePaperWordForWord) {
  const LatencyModel model = Extended(32);
  States states(3);
  int chunked = 0;
  for (const Cluster& cluster : {Cluster{8, 8}, Cluster{16, 4}, Cluster{32, 8}, Cluster{24, 8}}) {
    for (int i = 0; i < 150; ++i) {
      const State state = states.Draw(cluster);
      const PrefillPlan plan =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      const PrefillPlan paper =
          ReferencePlan(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      EXPECT_NEAR(plan.ttft_s, paper.ttft_s, 1e-9 * paper.ttft_s)
          << cluster.instances << "/" << cluster.node_size << " " << i;
      chunked += plan.chunks.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(chunked, 60);
}

// A measured profile may have any ratio of history to chunk, and sizes whose times cross; with
// tensor shapes, the time of a size is no quadratic.
TEST(CdspPlannerTest, EqualsThePaperWhateverTheProfile) {
  States states(6);
  const auto between = [&](double low, double high) { return low + states.Unit() * (high - low); };
  const auto shape = [&](int instances) {
    const double d = between(0.5, 1.5) * 1e-9 / instances;
    const double c = 2 * d * std::exp2(between(-3, 3));
    return SpCoefficients{between(0, 0.01) * instances, between(0.5, 1.5) * 1e-5 / instances, c, d};
  };
  const Cluster cluster = {8, 4};
  int chunked = 0;
  for (int profile = 0; profile < 120; ++profile) {
    std::map<int, SpCoefficients> sizes;
    for (const int sp : {1, 2, 4, 8}) sizes[sp] = shape(sp);
    std::vector<TensorShape> tensor;
    for (const int sp : {2, 4, 8}) {
      for (int tp = 2; tp <= sp && profile % 2 == 1; tp *= 2) tensor.push_back({sp, tp, shape(sp)});
    }
    const LatencyModel model = *LatencyModel::Make(sizes, tensor);
    for (int i = 0; i < 20; ++i) {
      State state = states.Draw(cluster);
      state.prompt_tokens = static_cast<int64_t>(std::exp2(between(15, 20)));
      state.options.improvement_rate = 0;
      const PrefillPlan plan =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      const PrefillPlan paper =
          ReferencePlan(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      EXPECT_NEAR(plan.ttft_s, paper.ttft_s, 1e-9 * paper.ttft_s) << profile << " " << i;
      const absl::Status valid =
          CheckPlan(model, cluster, state.queue_s, state.prompt_tokens, plan);
      EXPECT_TRUE(valid.ok()) << valid;
      chunked += plan.chunks.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(chunked, 120);
}

// On at most the single chunk's instances, kWide takes the shortest plan.
TEST(CdspPlannerTest, OnlyMoreInstancesNeedTheImprovementRate) {
  const LatencyModel model = Extended(16);
  States states(7);
  int shorter = 0;
  for (const Cluster& cluster : {Cluster{8, 4}, Cluster{16, 8}, Cluster{16, 4}}) {
    for (int i = 0; i < 100; ++i) {
      State state = states.Draw(cluster);
      state.options.improvement_rate = 0.3;
      const PrefillPlan single =
          PlanSingleChunk(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      state.options.scope = PlanScope::kWide;
      const PrefillPlan wide =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      state.options.improvement_rate = 0;
      const LatencyModel up_to = Extended(static_cast<int>(single.chunks[0].instances.size()));
      const PrefillPlan best =
          PlanCdsp(up_to, cluster, state.queue_s, state.prompt_tokens, state.options);
      EXPECT_LE(wide.ttft_s, best.ttft_s * (1 + 1e-9)) << cluster.instances << " " << i;
      shorter += wide.ttft_s < single.ttft_s ? 1 : 0;
    }
  }
  EXPECT_GT(shorter, 30);
}

// Shapes that are faster for short chunks and slower for long ones.
LatencyModel WithTensorShapes(const LatencyModel& model) {
  std::map<int, SpCoefficients> sizes;
  std::vector<TensorShape> tensor;
  for (const int sp : model.sp_sizes()) {
    const SpCoefficients k = sizes[sp] = model.CoefficientsAt(model.IndexOf(sp));
    for (int tp = 2; tp <= sp; tp *= 2) {
      tensor.push_back(
          {sp,
           tp,
           {k.a_s / tp, k.b_s_per_token * (1 + 0.1 * tp), k.c_s_per_token2, k.d_s_per_token2}});
    }
  }
  return *LatencyModel::Make(sizes, tensor);
}

class CdspPlannerShapesTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(TensorShapes, CdspPlannerShapesTest, ::testing::Bool());

// bench/planner/README.md has figures over more states.
TEST_P(CdspPlannerShapesTest, IsNearTheBestPlanThereIs) {
  const LatencyModel model = GetParam() ? WithTensorShapes(Extended(8)) : Extended(8);
  States states(4);
  double paper_over = 0, wide_over = 0;
  int count = 0;
  for (const Cluster& cluster : {Cluster{4, 4}, Cluster{4, 2}, Cluster{8, 4}}) {
    for (int i = 0; i < 60; ++i, ++count) {
      State state = states.Draw(cluster);
      state.prompt_tokens = 4096 + state.prompt_tokens / 8;
      state.options = {};
      const double best_s = ExhaustiveTtft(model, cluster, state.queue_s, state.prompt_tokens, 64);
      const PrefillPlan paper =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      state.options.scope = PlanScope::kWide;
      const PrefillPlan wide =
          PlanCdsp(model, cluster, state.queue_s, state.prompt_tokens, state.options);
      EXPECT_LE(wide.ttft_s, 1.03 * best_s);
      EXPECT_LE(paper.ttft_s, 1.5 * best_s);
      paper_over += paper.ttft_s / best_s - 1;
      wide_over += wide.ttft_s / best_s - 1;
    }
  }
  EXPECT_LE(paper_over / count, 0.03);
  EXPECT_LE(wide_over / count, 0.002);
}

// The recursion of algorithm 1 doubles with every SP size; the number of explored states does not.
TEST(CdspPlannerTest, IsBoundedAtAThousandInstancesAndEverySize) {
  const LatencyModel model = Extended(1024);
  const Cluster cluster{1024, 8};
  CdspPlanner planner(model, cluster);
  States states(5);
  PrefillPlan plan;
  // Larger groups become free later: the maximum number of chunks.
  std::vector<double> staircase;
  for (int i = 0; i < 1024; ++i) staircase.push_back(0.5 * std::log2(1 + i) + 1e-5 * i);
  for (const auto scope : {PlanScope::kPaper, PlanScope::kWide}) {
    planner.Plan(staircase, kMaxPromptTokens, {.scope = scope}, &plan);
    EXPECT_TRUE(CheckPlan(model, cluster, staircase, kMaxPromptTokens, plan).ok());
    EXPECT_GT(plan.chunks.size(), 3u);
  }
}

TEST(CdspPlannerTest, GroupsFollowTheExtensionRules) {
  const LatencyModel model = *LatencyModel::Make(
      {{1, {0, 1, 0, 0}}, {2, {0, 0.5, 0, 0}}, {4, {0, 0.25, 0, 0}}, {8, {0, 0.125, 0, 0}}});
  const Cluster cluster{12, 4};
  // Node 0 has the two soonest instances, node 1 is the soonest whole node, node 2 the second.
  const std::vector<double> queue_s = {0, 0, 90, 90, 10, 10, 10, 10, 20, 20, 20, 20};
  const auto groups = [&](int64_t tokens, double rate) {
    std::vector<std::vector<int>> instances;
    for (const ChunkPlan& chunk :
         PlanCdsp(model, cluster, queue_s, tokens, {rate, 1, PlanScope::kPaper}).chunks) {
      instances.push_back(chunk.instances);
    }
    return instances;
  };
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(groups(10, 0), (Groups{{0, 1}}));        // the s-th shortest of a node
  EXPECT_EQ(groups(45, 0), (Groups{{4, 5, 6, 7}}));  // a whole node
  EXPECT_EQ(groups(400, 0), (Groups{{4, 5, 6, 7}, {4, 5, 6, 7, 8, 9, 10, 11}}));  // and the next
}

TEST(CdspPlannerTest, AShortPromptStaysOnFewInstances) {
  // Constant time: the larger size would always win, but ring attention needs enough tokens.
  const LatencyModel model =
      *LatencyModel::Make({{1, {1, 1e-6, 0, 0}}, {2, {0.5, 1e-6, 0, 0}}, {8, {0.1, 1e-6, 0, 0}}});
  const std::vector<double> idle(8, 0.0);
  const auto size = [&](int64_t tokens) {
    return PlanCdsp(model, {8, 8}, idle, tokens, {}).chunks[0].instances.size();
  };
  EXPECT_EQ(size(1), 1u);
  EXPECT_EQ(size(4), 2u);
  EXPECT_EQ(size(15), 2u);
  EXPECT_EQ(size(16), 8u);
}

TEST(CdspPlannerTest, InputIsRefusedByName) {
  const LatencyModel& model = Llama3_8bA100();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto why = [&](Cluster cluster, std::vector<double> queue_s, int64_t tokens, double rate) {
    return std::string(
        CheckPlanInput(model, cluster, queue_s, tokens, {.improvement_rate = rate}).message());
  };
  EXPECT_EQ(why({2, 8}, {0, 1}, 5, 0.5), "");
  EXPECT_NE(why({0, 8}, {}, 5, 0).find("instances"), std::string::npos);
  EXPECT_NE(why({2, 0}, {0, 0}, 5, 0).find("node_size"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0}, 5, 0).find("queue_s"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0, nan}, 5, 0).find("queue_s[1]"), std::string::npos);
  EXPECT_NE(why({2, 8}, {-1, 0}, 5, 0).find("queue_s[0]: -1"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0, 0}, 0, 0).find("prompt_tokens: 0"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0, 0}, -7, 0).find("prompt_tokens: -7"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0, 0}, 5, 1).find("improvement_rate"), std::string::npos);
  EXPECT_NE(why({2, 8}, {0, 0}, 5, nan).find("improvement_rate"), std::string::npos);
}

TEST(BaselinesTest, FixedGroupsTakeTheShortestQueue) {
  const LatencyModel& model = Llama3_8bA100();
  std::vector<double> queue_s(20, 1.0);
  queue_s[3] = 2.0;
  PrefillPlan plan;
  PlanFixedSp(model, {20, 8}, 8, queue_s, 8192, &plan);
  ASSERT_TRUE(CheckPlan(model, {20, 8}, queue_s, 8192, plan).ok());
  EXPECT_EQ(plan.chunks[0].instances.front(), 8);
  EXPECT_EQ(plan.chunks[0].instances.back(), 15);
  EXPECT_DOUBLE_EQ(plan.ttft_s, 1.0 + model.Seconds(8, 0, 8192));

  // Every group is used, including the last one; it is free when all its instances are.
  queue_s = {5, 5, 5, 5, 5, 5, 5, 5, 1, 2, 3, 2, 1, 0, 0, 0};
  PlanFixedSp(model, {16, 8}, 8, queue_s, 8192, &plan);
  ASSERT_TRUE(CheckPlan(model, {16, 8}, queue_s, 8192, plan).ok());
  EXPECT_EQ(plan.chunks[0].instances.front(), 8);
  EXPECT_EQ(plan.chunks[0].start_s, 3);
}

}  // namespace
}  // namespace skein::scheduler
