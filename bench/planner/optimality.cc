// How far CdspPlanner is from the best plan that an exhaustive search finds, on small clusters.
//   bazel run --config=opt //bench/planner:optimality [-- STATES [MIN_CHUNK_TOKENS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/planner/states.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/oracle/exhaustive.h"

namespace {

namespace scheduler = skein::scheduler;

struct Case {
  scheduler::Cluster cluster;
  int max_sp;
  int grid;
};

void Row(const char* name, std::vector<double> over) {
  std::sort(over.begin(), over.end());
  double mean = 0;
  int exact = 0;
  for (const double value : over) {
    mean += value / static_cast<double>(over.size());
    exact += value <= 0.001 ? 1 : 0;
  }
  std::printf(" %s | %.2f | %.2f | %.2f | %.2f |", name, 100 * mean,
              100 * over[over.size() * 99 / 100], 100 * over.back(),
              100.0 * exact / static_cast<double>(over.size()));
}

void Measure(const Case& c, double max_queue_s, int count, int64_t min_chunk_tokens) {
  const scheduler::PlanOptions paper{.min_chunk_tokens = min_chunk_tokens};
  scheduler::PlanOptions beyond = paper;
  beyond.scope = scheduler::PlanScope::kWide;
  const scheduler::LatencyModel model = skein::bench::ExtendedModel(c.max_sp);
  scheduler::CdspPlanner planner(model, c.cluster);
  scheduler::PrefillPlan plan;
  std::mt19937_64 random(2);
  std::vector<double> tetris;
  std::vector<double> wide;
  std::vector<double> single;
  for (int i = 0; i < count; ++i) {
    const auto state = skein::bench::Draw(c.cluster.instances, max_queue_s, &random);
    const double best_s =
        scheduler::ExhaustiveTtft(model, c.cluster, state.queue_s, state.prompt_tokens, c.grid);
    planner.Plan(state.queue_s, state.prompt_tokens, paper, &plan);
    tetris.push_back(plan.ttft_s / best_s - 1);
    planner.Plan(state.queue_s, state.prompt_tokens, beyond, &plan);
    wide.push_back(plan.ttft_s / best_s - 1);
    planner.PlanSingleChunk(state.queue_s, state.prompt_tokens, paper, &plan);
    single.push_back(plan.ttft_s / best_s - 1);
  }
  std::printf("| %d x %d | %.0f |", c.cluster.nodes(), c.cluster.node_size, max_queue_s);
  Row("paper", tetris);
  Row("wide", wide);
  Row("single", single);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 500;
  const int64_t min_chunk_tokens =
      argc > 2 ? std::atoll(argv[2]) : scheduler::PlanOptions{}.min_chunk_tokens;
  std::printf(
      "| nodes x instances | max queue s | | mean %% | p99 %% | max %% | within 0.1 %% | | "
      "mean %% | p99 %% | max %% | within 0.1 %% |\n");
  for (const Case& c : {Case{{4, 4}, 4, 256}, Case{{4, 2}, 4, 256}, Case{{8, 4}, 8, 96},
                        Case{{8, 8}, 8, 96}, Case{{16, 8}, 16, 64}}) {
    for (const double max_queue_s : {1.0, 4.0, 16.0}) {
      Measure(c, max_queue_s, count, min_chunk_tokens);
    }
  }
}
