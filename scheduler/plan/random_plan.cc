#include "scheduler/plan/random_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/simulator/random.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

std::vector<int> Shuffled(absl::Span<const double> queue_s, Random* random) {
  std::vector<int> slots;
  for (size_t i = 0; i < queue_s.size(); ++i) {
    if (queue_s[i] < kNoInstanceS) slots.push_back(static_cast<int>(i));
  }
  for (size_t i = slots.size(); i > 1; --i) std::swap(slots[i - 1], slots[random->Below(i)]);
  return slots;
}

// SP sizes of the chunks: ascending, each within `instances`.
std::vector<int> Sizes(const LatencyModel& model, int64_t instances, int chunks, Random* random) {
  std::vector<int> fitting;
  for (const int sp : model.sp_sizes()) {
    if (sp <= instances) fitting.push_back(sp);
  }
  SKEIN_CHECK(!fitting.empty());
  std::vector<int> sizes;
  for (int i = 0; i < chunks; ++i) sizes.push_back(fitting[random->Below(fitting.size())]);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

PrefillPlan PlanRandom(const LatencyModel& model, absl::Span<const double> queue_s,
                       int64_t prompt_tokens, uint64_t seed) {
  Random random(seed);
  const std::vector<int> slots = Shuffled(queue_s, &random);
  const int chunks = static_cast<int>(
      std::min<uint64_t>(1 + random.Below(4), static_cast<uint64_t>(prompt_tokens)));
  PrefillPlan plan;
  int64_t history = 0;
  for (const int sp : Sizes(model, static_cast<int64_t>(slots.size()), chunks, &random)) {
    const auto left = static_cast<uint64_t>(chunks) - plan.chunks.size() - 1;
    ChunkPlan chunk;
    const int64_t most = prompt_tokens - history - static_cast<int64_t>(left);
    chunk.tokens =
        left == 0 ? most : 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(most)));
    chunk.instances.assign(slots.begin(), slots.begin() + sp);
    std::sort(chunk.instances.begin(), chunk.instances.end());
    chunk.start_s = plan.ttft_s;
    for (const int slot : chunk.instances) {
      chunk.start_s = std::max(chunk.start_s, queue_s[static_cast<size_t>(slot)]);
    }
    chunk.end_s = chunk.start_s + model.Seconds(sp, history, chunk.tokens);
    history += chunk.tokens;
    plan.ttft_s = chunk.end_s;
    plan.chunks.push_back(std::move(chunk));
  }
  return plan;
}

}  // namespace skein::scheduler
