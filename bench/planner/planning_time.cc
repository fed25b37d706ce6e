// Planning time at 8 ... 1,024 instances, 1,000 random states each.
//   bazel run --config=opt //bench/planner:planning_time
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/planner/states.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"

namespace {

using skein::bench::Draw;
using skein::bench::DrawStairs;
using skein::bench::ExtendedModel;
using skein::bench::RandomState;
namespace scheduler = skein::scheduler;

constexpr int kStates = 1000;
constexpr int kRounds = 9;

// Of each state the median of the rounds, which other processes disturb less than a single one.
std::vector<double> MicrosecondsOf(scheduler::CdspPlanner& planner,
                                   const std::vector<RandomState>& states,
                                   const scheduler::PlanOptions& options, double* chunks) {
  std::vector<std::vector<double>> rounds(states.size());
  scheduler::PrefillPlan plan;
  for (int round = 0; round < kRounds; ++round) {
    *chunks = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      planner.Plan(states[i].queue_s, states[i].prompt_tokens, options, &plan);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      rounds[i].push_back(took.count());
      *chunks += static_cast<double>(plan.chunks.size());
    }
  }
  *chunks /= static_cast<double>(states.size());
  std::vector<double> medians;
  for (auto& of_state : rounds) {
    std::nth_element(of_state.begin(), of_state.begin() + kRounds / 2, of_state.end());
    medians.push_back(of_state[kRounds / 2]);
  }
  std::sort(medians.begin(), medians.end());
  return medians;
}

// max_queue_s 0: stairs.
void Measure(scheduler::PlanScope scope, int instances, double rate, double max_queue_s) {
  const scheduler::LatencyModel model = ExtendedModel(instances);
  scheduler::CdspPlanner planner(model, {instances, 8});
  std::mt19937_64 random(1);
  std::vector<RandomState> states;
  for (int i = 0; i < kStates; ++i) {
    states.push_back(max_queue_s > 0 ? Draw(instances, max_queue_s, &random)
                                     : DrawStairs(instances, &random));
  }
  double chunks = 0;
  const auto sorted =
      MicrosecondsOf(planner, states, {.improvement_rate = rate, .scope = scope}, &chunks);
  const std::string queues =
      max_queue_s > 0 ? std::to_string(static_cast<int>(max_queue_s)) + " s" : "stairs";
  std::printf("| %s | %4d | %.1f | %6s | %6.2f | %6.2f | %6.2f | %.2f |\n",
              scope == scheduler::PlanScope::kWide ? "wide" : "paper", instances, rate,
              queues.c_str(), std::accumulate(sorted.begin(), sorted.end(), 0.0) / kStates,
              sorted[kStates * 99 / 100], sorted.back(), chunks);
}

// As an orchestrator plans: each state is the last one with its plan carried out in part, so that
// the queues keep their mean.
void MeasureSequence(int instances, double rate) {
  constexpr int kPlans = 20000;
  const scheduler::LatencyModel model = ExtendedModel(instances);
  scheduler::CdspPlanner planner(model, {instances, 8});
  std::mt19937_64 random(1);
  std::vector<double> queue_s = Draw(instances, 4, &random).queue_s;
  scheduler::PrefillPlan plan;
  std::vector<double> took_us;
  for (int i = 0; i < kPlans; ++i) {
    const int64_t prompt_tokens = Draw(1, 1, &random).prompt_tokens;
    const auto start = std::chrono::steady_clock::now();
    planner.Plan(queue_s, prompt_tokens, {.improvement_rate = rate}, &plan);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    took_us.push_back(took.count());
    double busy_s = 0;
    for (const scheduler::ChunkPlan& chunk : plan.chunks) {
      for (const int instance : chunk.instances) {
        double& free_s = queue_s[static_cast<size_t>(instance)];
        busy_s += chunk.end_s - free_s;
        free_s = chunk.end_s;
      }
    }
    for (double& free_s : queue_s) free_s = std::max(0.0, free_s - 1.02 * busy_s / instances);
  }
  std::sort(took_us.begin(), took_us.end());
  std::printf("| paper | %4d | %.1f | in sequence | %6.2f | %6.2f | %6.2f | |\n", instances, rate,
              std::accumulate(took_us.begin(), took_us.end(), 0.0) / kPlans,
              took_us[kPlans * 99 / 100], took_us.back());
}

}  // namespace

int main() {
  std::printf("| scope | instances | rate | queues | mean us | p99 us | max us | chunks |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const auto scope : {scheduler::PlanScope::kPaper, scheduler::PlanScope::kWide}) {
    for (const int instances : {8, 16, 32, 64, 128, 1024}) Measure(scope, instances, 0, 4);
    for (const double max_queue_s : {1, 16}) Measure(scope, 128, 0, max_queue_s);
    for (const double max_queue_s : {1, 4, 16}) Measure(scope, 128, 0.3, max_queue_s);
    for (const int instances : {128, 1024}) Measure(scope, instances, 0, 0);
  }
  for (const int instances : {128, 1024}) MeasureSequence(instances, 0.2);
}
