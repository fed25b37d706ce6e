// Random states of a cluster, and a profile that reaches beyond the paper's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::bench {

// LLaMA3-8B on A100 up to SP `max_sp`: beyond 16 the constant doubles and the rest halves with each
// doubling, which is what the fitted coefficients of 4, 8 and 16 do.
inline scheduler::LatencyModel ExtendedModel(int max_sp) {
  std::map<int, scheduler::SpCoefficients> sizes;
  const scheduler::LatencyModel& base = scheduler::Llama3_8bA100();
  for (const int sp : base.sp_sizes()) sizes[sp] = base.CoefficientsAt(base.IndexOf(sp));
  for (int sp = 32; sp <= max_sp; sp *= 2) {
    const scheduler::SpCoefficients& half = sizes.at(sp / 2);
    sizes[sp] = {half.a_s * 2, half.b_s_per_token / 2, half.c_s_per_token2 / 2,
                 half.d_s_per_token2 / 2};
  }
  while (sizes.rbegin()->first > max_sp) sizes.erase(sizes.rbegin()->first);
  return *scheduler::LatencyModel::Make(sizes);
}

struct RandomState {
  int64_t prompt_tokens;
  std::vector<double> queue_s;
};

// Prompts of 4k ... 256k, log-uniform, and queues of 0 ... max_queue_s, uniform.
inline RandomState Draw(int instances, double max_queue_s, std::mt19937_64* random) {
  const auto unit = [random] { return static_cast<double>((*random)() >> 11) * 0x1p-53; };
  RandomState state;
  state.prompt_tokens = static_cast<int64_t>(4096 * std::exp2(unit() * 6));
  for (int i = 0; i < instances; ++i) state.queue_s.push_back(unit() * max_queue_s);
  return state;
}

// The hardest states: twice as many instances are free so much later, at every size, that all
// sequences of SP sizes make legal chunks.
inline RandomState DrawStairs(int instances, std::mt19937_64* random) {
  RandomState state = Draw(instances, 1, random);
  const double step_s = 0.1 + 4 * state.queue_s[0];
  for (int i = 0; i < instances; ++i) {
    double& queue_s = state.queue_s[static_cast<size_t>(i)];
    queue_s = step_s * std::log2(1 + i) + 0.001 * queue_s;
  }
  state.prompt_tokens = int64_t{1} << 20;
  return state;
}

}  // namespace skein::bench
