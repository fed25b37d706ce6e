#include "scheduler/plan/cdsp_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"
#include "scheduler/plan/chunk_search.h"
#include "scheduler/plan/node_groups.h"

namespace skein::scheduler {

absl::Status CheckPlanInput(const LatencyModel& model, const Cluster& cluster,
                            absl::Span<const double> queue_s, int64_t prompt_tokens,
                            const PlanOptions& options) {
  const auto wrong = [](auto&&... text) {
    return absl::InvalidArgumentError(absl::StrCat(text...));
  };
  if (cluster.instances < 1) return wrong("instances: ", cluster.instances, " is less than 1");
  if (cluster.node_size < 1) return wrong("node_size: ", cluster.node_size, " is less than 1");
  if (model.sp_sizes().front() > cluster.instances) {
    return wrong("instances: ", cluster.instances, " is less than the profile's smallest SP size, ",
                 model.sp_sizes().front());
  }
  if (queue_s.size() != static_cast<size_t>(cluster.instances)) {
    return wrong("queue_s: ", queue_s.size(), " values for ", cluster.instances, " instances");
  }
  for (size_t i = 0; i < queue_s.size(); ++i) {
    if (!std::isfinite(queue_s[i]) || queue_s[i] < 0) {
      return wrong("queue_s[", i, "]: ", queue_s[i], " is not a finite time of at least 0");
    }
  }
  if (prompt_tokens < 1 || prompt_tokens > kMaxPromptTokens) {
    return wrong("prompt_tokens: ", prompt_tokens, " is not in 1 ... ", kMaxPromptTokens);
  }
  if (!(options.improvement_rate >= 0 && options.improvement_rate < 1)) {
    return wrong("improvement_rate: ", options.improvement_rate, " is not in [0, 1)");
  }
  if (options.min_chunk_tokens < 1) {
    return wrong("min_chunk_tokens: ", options.min_chunk_tokens, " is less than 1");
  }
  return absl::OkStatus();
}

class CdspPlanner::Impl {
 public:
  Impl(const LatencyModel& model, const Cluster& cluster)
      : model_(model), cluster_(cluster), groups_(cluster), search_(model) {
    const auto& sizes = model.sp_sizes();
    const auto fits = [&](int sp) { return sp <= cluster_.instances; };
    sizes_ = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), fits));
  }

  void Plan(absl::Span<const double> queue_s, int64_t prompt_tokens, const PlanOptions& options,
            bool chunks, PrefillPlan* plan);

  const LatencyModel& model() const { return model_; }
  const Cluster& cluster() const { return cluster_; }

 private:
  void Grow(int index, Group* group) {
    groups_.Extend(model_.sp_sizes()[static_cast<size_t>(index)], group);
  }
  ChunkPath SingleChunk(int64_t prompt_tokens, double improvement_rate);
  void Explore(int64_t prompt_tokens, const PlanOptions& options, ChunkPath* best);
  void Write(const ChunkPath& path, PrefillPlan* plan);

  const LatencyModel& model_;
  const Cluster cluster_;
  int sizes_ = 0;  // how many of the model's SP sizes the cluster holds
  NodeGroups groups_;
  ChunkSearch search_;
  Group group_;
  Group single_;
};

void CdspPlanner::Impl::Plan(absl::Span<const double> queue_s, int64_t prompt_tokens,
                             const PlanOptions& options, bool chunks, PrefillPlan* plan) {
  const absl::Status input = CheckPlanInput(model_, cluster_, queue_s, prompt_tokens, options);
  SKEIN_INVARIANT_MSG(input.ok(), std::string(input.message()).c_str());
  groups_.Reset(queue_s);
  groups_.SetPoolToCluster();
  ChunkPath path = SingleChunk(prompt_tokens, options.improvement_rate);
  if (chunks) Explore(prompt_tokens, options, &path);
  Write(path, plan);
}

// Algorithm 2 for a new request: groups of every size, each from an empty one.
ChunkPath CdspPlanner::Impl::SingleChunk(int64_t prompt_tokens, double improvement_rate) {
  ChunkPath best;
  best.chunks = 1;
  best.ttft_s = std::numeric_limits<double>::infinity();
  for (int index = 0; index < sizes_; ++index) {
    if (index > 0 && !HoldsEnough(model_.sp_sizes()[static_cast<size_t>(index)], prompt_tokens)) {
      break;
    }
    group_.Clear();
    Grow(index, &group_);
    const double ttft_s = group_.ready_s + model_.SecondsAt(index, 0, prompt_tokens);
    if (index > 0 && !(ttft_s < best.ttft_s * (1 - improvement_rate))) continue;
    best.ttft_s = ttft_s;
    best.chunk[0] = {index, prompt_tokens, group_.ready_s, ttft_s};
    std::swap(single_, group_);
  }
  return best;
}

// Algorithm 1 within the instances of the single chunk, which bound the SP size.
void CdspPlanner::Impl::Explore(int64_t prompt_tokens, const PlanOptions& options,
                                ChunkPath* best) {
  const int largest = best->chunk[0].size_index;
  if (largest == 0) return;
  groups_.SetPool(single_);
  search_.Start(prompt_tokens, options, kMaxExplored, best);
  double ready_s[ChunkSearch::kMaxSizes];
  for (int first = 0; first < largest; ++first) {
    group_.Clear();
    for (int index = first; index <= largest; ++index) {
      Grow(index, &group_);
      ready_s[index] = group_.ready_s;
    }
    search_.From(first, largest, ready_s);
  }
}

void CdspPlanner::Impl::Write(const ChunkPath& path, PrefillPlan* plan) {
  plan->ttft_s = path.ttft_s;
  plan->chunks.resize(static_cast<size_t>(path.chunks));
  if (path.chunks == 1) {  // the group of algorithm 2
    groups_.List(single_, &plan->chunks[0].instances);
  }
  group_.Clear();
  int index = path.chunk[0].size_index;
  for (int i = 0; i < path.chunks; ++i) {
    const PathChunk& from = path.chunk[static_cast<size_t>(i)];
    ChunkPlan& to = plan->chunks[static_cast<size_t>(i)];
    to.tokens = from.tokens;
    to.start_s = from.start_s;
    to.end_s = from.end_s;
    if (path.chunks == 1) break;
    for (; index <= from.size_index; ++index) Grow(index, &group_);  // size by size, as explored
    groups_.List(group_, &to.instances);
  }
}

CdspPlanner::CdspPlanner(const LatencyModel& model, const Cluster& cluster)
    : impl_(std::make_unique<Impl>(model, cluster)) {}
CdspPlanner::~CdspPlanner() = default;
CdspPlanner::CdspPlanner(CdspPlanner&&) noexcept = default;

void CdspPlanner::Plan(absl::Span<const double> queue_s, int64_t prompt_tokens,
                       const PlanOptions& options, PrefillPlan* plan) {
  impl_->Plan(queue_s, prompt_tokens, options, /*chunks=*/true, plan);
}

void CdspPlanner::PlanSingleChunk(absl::Span<const double> queue_s, int64_t prompt_tokens,
                                  const PlanOptions& options, PrefillPlan* plan) {
  impl_->Plan(queue_s, prompt_tokens, options, /*chunks=*/false, plan);
}

const LatencyModel& CdspPlanner::model() const { return impl_->model(); }
const Cluster& CdspPlanner::cluster() const { return impl_->cluster(); }

PrefillPlan PlanCdsp(const LatencyModel& model, const Cluster& cluster,
                     absl::Span<const double> queue_s, int64_t prompt_tokens,
                     const PlanOptions& options) {
  PrefillPlan plan;
  CdspPlanner(model, cluster).Plan(queue_s, prompt_tokens, options, &plan);
  return plan;
}

}  // namespace skein::scheduler
