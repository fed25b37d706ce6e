// The simulator with a profile that has tensor shapes: chunks run in the (SP, TP) that their
// instances allow, and take its time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/tensor_groups.h"
#include "scheduler/simulator/simulator.h"

namespace skein::scheduler {
namespace {

constexpr Cluster kCluster = {16, 8};
const char* const kPolicies[] = {"tetris", "single", "greedy", "fixed8", "fixed16", "rolling"};

// In TP a chunk's constant is shared, and each token costs more.
LatencyModel WithShapes() {
  const LatencyModel& plain = Llama3_8bA100();
  std::map<int, SpCoefficients> sizes;
  std::vector<TensorShape> tensor;
  for (const int sp : plain.sp_sizes()) {
    const SpCoefficients k = sizes[sp] = plain.CoefficientsAt(plain.IndexOf(sp));
    for (int tp = 2; tp <= sp; tp *= 2) {
      tensor.push_back({sp,
                        tp,
                        {k.a_s * 2 / (1 + tp), k.b_s_per_token * (1 + 0.05 * tp), k.c_s_per_token2,
                         k.d_s_per_token2}});
    }
  }
  return LatencyModel::Make(sizes, tensor)->Within({.tp_max = kCluster.node_size});
}

std::vector<SimRequest> Load(double rate, int64_t requests) {
  return GenerateWorkload(*LengthDistribution::OfPaper("short"), LengthDistribution::Outputs(),
                          {rate, requests, 1, 11});
}

TEST(TensorShapes, EveryChunkTakesTheTimeOfTheShapeThatItsInstancesAllow) {
  const LatencyModel model = WithShapes();
  const std::vector<SimRequest> requests = Load(4, 400);
  std::map<int, int64_t> by_tp;
  for (const char* policy : kPolicies) {
    std::vector<PlanRanks> ranks(requests.size(), PlanRanks(kCluster));
    std::vector<int64_t> history(requests.size(), 0);
    std::map<std::pair<int, int>, int64_t> shapes;
    const PrefillRun run = RunPolicy(
        *Policy::Parse(policy), requests, model, kCluster, {},
        [&](size_t request, const ChunkPlan& chunk) {
          const auto sp = static_cast<int>(chunk.instances.size());
          EXPECT_EQ(chunk.tp, ranks[request].AddChunk(model, chunk.instances, history[request],
                                                      chunk.tokens));
          EXPECT_NEAR(chunk.end_s - chunk.start_s,
                      model.SecondsWith(sp, chunk.tp, history[request], chunk.tokens), 1e-9);
          history[request] += chunk.tokens;
          ++shapes[{sp / chunk.tp, chunk.tp}];
          ++by_tp[chunk.tp];
        });
    EXPECT_EQ(run.shapes, shapes) << policy;
    int64_t chunks = 0;
    for (const auto& [shape, count] : shapes) chunks += count;
    EXPECT_EQ(chunks, run.chunks) << policy;
    for (size_t r = 0; r < requests.size(); ++r) EXPECT_EQ(history[r], requests[r].prompt_tokens);
  }
  for (const int tp : {1, 2, 4, 8}) EXPECT_GT(by_tp[tp], 0) << tp;
  EXPECT_EQ(by_tp.size(), 4u) << "a node has eight";
}

// Where a prompt is alone, more shapes are never slower. (An improvement rate may then choose fewer
// instances.)
TEST(TensorShapes, ShortenTheTimeToFirstTokenAtLightLoad) {
  const LatencyModel model = WithShapes();
  std::vector<SimRequest> requests;
  requests.reserve(300);
  for (int i = 0; i < 300; ++i) requests.push_back({i * 100.0, 100 + i * i, 1});
  for (const char* policy : {"greedy", "fixed8"}) {
    const auto times = [&](const ShapeLimits& limits) {
      return TtftSeconds(requests, RunPolicy(*Policy::Parse(policy), requests, model.Within(limits),
                                             kCluster, {}));
    };
    const std::vector<double> with = times({.tp_max = kCluster.node_size});
    const std::vector<double> without = times({.pinned_tp = 1});
    int faster = 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_LE(with[r], without[r] * (1 + 1e-9)) << policy << " " << requests[r].prompt_tokens;
      faster += with[r] < without[r] * 0.99 ? 1 : 0;
    }
    EXPECT_GT(faster, 30) << policy;
  }
}

// The profile without its rows, to the bit: also what a pinned 1 gives.
TEST(TensorShapes, WithoutThemEveryNumberIsAsItWas) {
  const std::vector<SimRequest> requests = Load(4, 400);
  const LatencyModel one = WithShapes().Within({.pinned_tp = 1});
  for (const char* policy : kPolicies) {
    const auto run = [&](const LatencyModel& model) {
      return Simulate(*Policy::Parse(policy), requests, model, kCluster, {}, {});
    };
    const SimulationResult plain = run(Llama3_8bA100());
    const SimulationResult pinned = run(one);
    EXPECT_EQ(plain.ttft_s, pinned.ttft_s) << policy;
    EXPECT_EQ(plain.shapes, pinned.shapes) << policy;
    for (const auto& [shape, chunks] : plain.shapes) EXPECT_EQ(shape.second, 1) << policy;
  }
}

}  // namespace
}  // namespace skein::scheduler
