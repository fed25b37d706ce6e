#include "scheduler/plan/testing/reference_planner.h"

#include <algorithm>
#include <limits>
#include <set>

namespace skein::scheduler {
namespace {

struct Candidate {  // an instance of the pool
  int instance;
  double queue_s;
};
using Pool = std::vector<Candidate>;
using Sizes = std::vector<int>;

struct Allocation {
  struct Chunk {
    int64_t tokens;
    std::vector<int> group;
    double queue_s;  // from the end of the previous chunk
    double prefill_s;
  };
  std::vector<Chunk> chunks;

  int64_t Tokens() const {
    int64_t sum = 0;
    for (const Chunk& chunk : chunks) sum += chunk.tokens;
    return sum;
  }
  double Ttft() const {
    double sum = 0;
    for (const Chunk& chunk : chunks) sum += chunk.queue_s + chunk.prefill_s;
    return sum;
  }
};

class Reference {
 public:
  Reference(const LatencyModel& model, int node_size, const PlanOptions& options)
      : model_(model), node_size_(node_size), options_(options) {}

  // Algorithm 1.
  Allocation Schedule(int64_t rest, const Allocation& before, const Sizes& sizes,
                      const Pool& pool) const {
    const std::vector<int> group = SingleChunk(rest, before, sizes, pool);
    Allocation best = before;
    best.chunks.push_back(ChunkOf(rest, before, group, pool));
    const Pool inside = Restrict(pool, group);
    for (const int current : sizes) {
      for (const int next : sizes) {
        if (current >= next || next > static_cast<int>(group.size())) continue;
        const Allocation::Chunk chunk = SolveChunk(rest, before, current, next, inside);
        if (Illegal(chunk, rest, current, next)) continue;
        Allocation longer = before;
        longer.chunks.push_back(chunk);
        Sizes later;
        for (const int size : sizes) {
          if (size >= next && size <= static_cast<int>(group.size())) later.push_back(size);
        }
        const Allocation full = Schedule(rest - chunk.tokens, longer, later, Update(inside, chunk));
        if (best.Ttft() > full.Ttft()) best = full;
      }
    }
    return best;
  }

 private:
  static std::vector<int> Instances(const Allocation& allocation) {
    return allocation.chunks.empty() ? std::vector<int>{} : allocation.chunks.back().group;
  }

  static double QueueOf(const std::vector<int>& group, const Pool& pool) {
    double queue_s = 0;
    for (const Candidate& candidate : pool) {
      if (std::find(group.begin(), group.end(), candidate.instance) == group.end()) continue;
      queue_s = std::max(queue_s, candidate.queue_s);
    }
    return queue_s;
  }

  static Pool Restrict(const Pool& pool, const std::vector<int>& group) {
    Pool inside;
    for (const Candidate& candidate : pool) {
      if (std::find(group.begin(), group.end(), candidate.instance) != group.end()) {
        inside.push_back(candidate);
      }
    }
    return inside;
  }

  // Equation 2.
  static Pool Update(Pool pool, const Allocation::Chunk& chunk) {
    for (Candidate& candidate : pool) {
      candidate.queue_s = std::max(0.0, candidate.queue_s - (chunk.queue_s + chunk.prefill_s));
    }
    return pool;
  }

  Allocation::Chunk ChunkOf(int64_t tokens, const Allocation& before, const std::vector<int>& group,
                            const Pool& pool) const {
    return {tokens, group, QueueOf(group, pool),
            model_.Seconds(static_cast<int>(group.size()), before.Tokens(), tokens)};
  }

  // Algorithm 2.
  std::vector<int> SingleChunk(int64_t rest, const Allocation& before, const Sizes& sizes,
                               const Pool& pool) const {
    double best_s = std::numeric_limits<double>::infinity();
    std::vector<int> best;
    for (const int size : sizes) {
      if (size > static_cast<int>(pool.size())) break;
      if (!best.empty() && rest < 2 * int64_t{size}) break;
      const std::vector<int> group = GetGroup(pool, Instances(before), size);
      const Allocation::Chunk chunk = ChunkOf(rest, before, group, pool);
      const double ttft_s = chunk.queue_s + chunk.prefill_s;
      if (!best.empty() && !(ttft_s < best_s * (1 - options_.improvement_rate))) continue;
      best_s = ttft_s;
      best = group;
    }
    return best;
  }

  // Algorithm 3.
  Allocation::Chunk SolveChunk(int64_t rest, const Allocation& before, int current, int next,
                               const Pool& pool) const {
    const std::vector<int> current_group = GetGroup(pool, Instances(before), current);
    const std::vector<int> next_group = GetGroup(pool, current_group, next);
    const double budget_s = QueueOf(next_group, pool) - QueueOf(current_group, pool);
    const int64_t tokens =
        std::min(rest, model_.SolveChunkTokens(current, before.Tokens(), budget_s));
    return ChunkOf(tokens, before, current_group, pool);
  }

  bool Illegal(const Allocation::Chunk& chunk, int64_t rest, int current, int next) const {
    const int64_t left = rest - chunk.tokens;
    return chunk.tokens < std::max(options_.min_chunk_tokens, 2 * int64_t{current}) ||
           left < std::max(options_.min_chunk_tokens, 2 * int64_t{next});
  }

  // Instance group extension.
  std::vector<int> GetGroup(Pool pool, std::vector<int> group, int size) const {
    std::stable_sort(pool.begin(), pool.end(),
                     [](const Candidate& a, const Candidate& b) { return a.queue_s < b.queue_s; });
    const auto taken = [&](int instance) {
      return std::find(group.begin(), group.end(), instance) != group.end();
    };
    std::set<int> own;
    for (const int instance : group) own.insert(instance / node_size_);
    for (const Candidate& candidate : pool) {  // (2): first the nodes of the initial group
      if (static_cast<int>(group.size()) == size) return group;
      if (own.count(candidate.instance / node_size_) > 0 && !taken(candidate.instance)) {
        group.push_back(candidate.instance);
      }
    }
    while (static_cast<int>(group.size()) < size) {  // (1): whole nodes, then part of one
      const int missing = std::min(size - static_cast<int>(group.size()), node_size_);
      std::vector<int> best;
      double best_s = 0;
      for (int node = 0; node * node_size_ < kMaxInstances; ++node) {
        std::vector<int> soonest;
        double ready_s = 0;
        for (const Candidate& candidate : pool) {
          if (candidate.instance / node_size_ != node || taken(candidate.instance)) continue;
          if (static_cast<int>(soonest.size()) == missing) break;
          soonest.push_back(candidate.instance);
          ready_s = candidate.queue_s;
        }
        if (static_cast<int>(soonest.size()) < missing) continue;
        if (!best.empty() && ready_s >= best_s) continue;
        best = soonest;
        best_s = ready_s;
      }
      group.insert(group.end(), best.begin(), best.end());
    }
    return group;
  }

  static constexpr int kMaxInstances = 128;

  const LatencyModel& model_;
  const int node_size_;
  const PlanOptions options_;
};

}  // namespace

PrefillPlan ReferencePlan(const LatencyModel& model, const Cluster& cluster,
                          const std::vector<double>& queue_s, int64_t prompt_tokens,
                          const PlanOptions& options) {
  Pool pool;
  for (int i = 0; i < cluster.instances; ++i) pool.push_back({i, queue_s[static_cast<size_t>(i)]});
  const Allocation allocation = Reference(model, cluster.node_size, options)
                                    .Schedule(prompt_tokens, {}, model.sp_sizes(), pool);
  PrefillPlan plan;
  for (const Allocation::Chunk& from : allocation.chunks) {
    ChunkPlan chunk{from.tokens, from.group, plan.ttft_s + from.queue_s,
                    plan.ttft_s + from.queue_s + from.prefill_s};
    std::sort(chunk.instances.begin(), chunk.instances.end());
    plan.ttft_s = chunk.end_s;
    plan.chunks.push_back(std::move(chunk));
  }
  return plan;
}

}  // namespace skein::scheduler
