#include "scheduler/plan/cdsp/cdsp_planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/cdsp/chunk_ladder.h"
#include "scheduler/plan/cdsp/chunk_path.h"
#include "scheduler/plan/cdsp/chunk_search.h"
#include "scheduler/plan/cdsp/node_groups.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// The size if all are right: the first pass has no branch and becomes vector instructions.
size_t FirstWrongTime(absl::Span<const double> queue_s) {
  constexpr double kMax = std::numeric_limits<double>::max();
  const auto right = [](double time_s) { return time_s >= 0 && time_s <= kMax; };
  int64_t right_times = 0;
  for (const double time_s : queue_s) right_times += int{time_s >= 0} & int{time_s <= kMax};
  if (right_times == static_cast<int64_t>(queue_s.size())) return queue_s.size();
  return static_cast<size_t>(std::find_if_not(queue_s.begin(), queue_s.end(), right) -
                             queue_s.begin());
}

}  // namespace

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
  if (const size_t i = FirstWrongTime(queue_s); i < queue_s.size()) {
    return wrong("queue_s[", i, "]: ", queue_s[i], " is not a finite time of at least 0");
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
      : model_(model), cluster_(cluster), groups_(cluster), search_(model), ladder_(model) {
    const auto& sizes = model.sp_sizes();
    const auto fits = [&](int sp) { return sp <= cluster_.instances; };
    sizes_ = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), fits));
  }

  void Plan(absl::Span<const double> queue_s, int64_t prompt_tokens, const PlanOptions& options,
            bool chunks, PrefillPlan* plan);
  std::vector<SingleChunk> SingleChunks(absl::Span<const double> queue_s, int64_t prompt_tokens);
  const std::vector<SingleChunk>& singles() const { return singles_; }

  const LatencyModel& model() const { return model_; }
  const Cluster& cluster() const { return cluster_; }

 private:
  using Times = std::array<double, kMaxSpSizes>;

  struct Ending {
    double ttft_s = 0;
    int row = 0;
  };

  int Size(int index) const { return model_.sp_sizes()[static_cast<size_t>(index)]; }
  ChunkPath BestSingle(int64_t prompt_tokens, double improvement_rate);
  void Explore(int largest, ChunkPath* best);
  void ExploreWide(int64_t prompt_tokens, const PlanOptions& options, int largest, ChunkPath* best);
  int StartNodes();
  void FillTimes(int first, int largest, Times* times);
  void Write(const ChunkPath& path, PrefillPlan* plan);

  const LatencyModel& model_;
  const Cluster cluster_;
  int sizes_ = 0;  // number of the model's SP sizes that fit the cluster
  NodeGroups groups_;
  ChunkSearch search_;
  ChunkLadder ladder_;
  Group single_;                      // from algorithm 2
  std::vector<SingleChunk> singles_;  // the same, of each size
  Group group_;                       // scratch
  std::array<Times, kMaxSpSizes> times_;
  std::array<int, kMaxSpSizes> start_nodes_;
};

void CdspPlanner::Impl::Plan(absl::Span<const double> queue_s, int64_t prompt_tokens,
                             const PlanOptions& options, bool chunks, PrefillPlan* plan) {
  const absl::Status input = CheckPlanInput(model_, cluster_, queue_s, prompt_tokens, options);
  SKEIN_CHECK_MSG(input.ok(), std::string(input.message()).c_str());
  groups_.Reset(queue_s);
  ChunkPath path = BestSingle(prompt_tokens, options.improvement_rate);
  if (chunks) {
    const int largest = path.chunk[0].size_index;
    search_.Start(prompt_tokens, options, kMaxExplored);
    Explore(largest, &path);
    if (options.scope == PlanScope::kWide) ExploreWide(prompt_tokens, options, largest, &path);
  }
  Write(path, plan);
}

// Algorithm 2 for a new request: groups of every size, each grown from an empty one.
ChunkPath CdspPlanner::Impl::BestSingle(int64_t prompt_tokens, double improvement_rate) {
  groups_.UseCluster();
  ChunkPath best;
  best.chunks = 1;
  best.ttft_s = std::numeric_limits<double>::infinity();
  singles_.clear();
  for (int index = 0; index < sizes_; ++index) {
    if (index > 0 && !HoldsEnough(Size(index), prompt_tokens)) break;
    group_.Clear();
    groups_.Extend(Size(index), &group_);
    const double ttft_s = group_.ready_s + model_.SecondsAt(index, 0, prompt_tokens);
    singles_.push_back({Size(index), group_.ready_s, ttft_s});
    if (index > 0 && !(ttft_s < best.ttft_s * (1 - improvement_rate))) continue;
    best.ttft_s = ttft_s;
    best.chunk[0] = {index, prompt_tokens, group_.ready_s, ttft_s};
    std::swap(single_, group_);
  }
  return best;
}

std::vector<CdspPlanner::SingleChunk> CdspPlanner::Impl::SingleChunks(
    absl::Span<const double> queue_s, int64_t prompt_tokens) {
  const absl::Status input = CheckPlanInput(model_, cluster_, queue_s, prompt_tokens, {});
  SKEIN_CHECK_MSG(input.ok(), std::string(input.message()).c_str());
  groups_.Reset(queue_s);
  BestSingle(prompt_tokens, /*improvement_rate=*/0);
  return singles_;
}

// Algorithm 1 within the instances of the single chunk, which bound the SP size. Groups of leading
// nodes only are the same whatever they have grown from, so their times are found once.
void CdspPlanner::Impl::Explore(int largest, ChunkPath* best) {
  groups_.UsePool(single_);
  bool leading_only = false;
  for (int first = 0; first < largest; ++first) {
    group_.Clear();
    if (!leading_only) FillTimes(first, largest, &times_[0]);
    leading_only = group_.specials == 0;
    search_.From(first, largest, times_[0].data(), best);
  }
}

// Starts from every node that is the best one for some SP size, uses the whole cluster, and tries
// more instances than the single chunk's while that passes the improvement rate.
void CdspPlanner::Impl::ExploreWide(int64_t prompt_tokens, const PlanOptions& options, int largest,
                                    ChunkPath* best) {
  const int nodes = StartNodes();
  std::array<Ending, kMaxSpSizes> endings;  // by the size index of the last chunk
  for (int row = 0; row < nodes; ++row) {
    groups_.Start(start_nodes_[static_cast<size_t>(row)], Size(0), &group_);
    Times& times = times_[static_cast<size_t>(row)];
    FillTimes(0, sizes_ - 1, &times);
    ladder_.Climb(times.data(), sizes_, prompt_tokens, options.min_chunk_tokens);
    for (int index = 0; index < sizes_; ++index) {
      Ending& ending = endings[static_cast<size_t>(index)];
      if (row == 0 || ladder_.TtftAt(index) < ending.ttft_s) ending = {ladder_.TtftAt(index), row};
    }
  }
  double best_s = best->ttft_s;
  int chosen = -1;
  for (int index = 0; nodes > 0 && index < sizes_; ++index) {
    const double ttft_s = endings[static_cast<size_t>(index)].ttft_s;
    if (!(ttft_s < best_s * (index > largest ? 1 - options.improvement_rate : 1))) continue;
    best_s = ttft_s;
    chosen = index;
  }
  if (chosen < 0) return;
  const auto row = static_cast<size_t>(endings[static_cast<size_t>(chosen)].row);
  ladder_.Climb(times_[row].data(), sizes_, prompt_tokens, options.min_chunk_tokens);
  ladder_.WritePath(chosen, best);
  best->start_node = start_nodes_[row];
}

// Number of different start nodes.
int CdspPlanner::Impl::StartNodes() {
  groups_.UseCluster();
  int nodes = 0;
  for (int index = 0; index < sizes_; ++index) {
    const int node = groups_.BestNode(Size(index));
    if (node < 0) break;  // no node has this many
    const auto end = start_nodes_.begin() + nodes;
    if (std::find(start_nodes_.begin(), end, node) != end) continue;
    *end = node;
    ++nodes;
  }
  return nodes;
}

// When the groups grown from group_ are free, by size index.
void CdspPlanner::Impl::FillTimes(int first, int largest, Times* times) {
  for (int index = first; index <= largest; ++index) {
    groups_.Extend(Size(index), &group_);
    (*times)[static_cast<size_t>(index)] = group_.ready_s;
  }
}

// Grows the groups again as they were grown when the path was found.
void CdspPlanner::Impl::Write(const ChunkPath& path, PrefillPlan* plan) {
  int index = path.chunk[0].size_index;
  group_.Clear();
  if (path.start_node >= 0) {
    groups_.UseCluster();
    groups_.Start(path.start_node, Size(0), &group_);
    index = 0;
  } else if (path.chunks == 1) {
    groups_.UseCluster();
  } else {
    groups_.UsePool(single_);
  }
  plan->ttft_s = path.ttft_s;
  plan->chunks.resize(static_cast<size_t>(path.chunks));
  for (size_t i = 0; i < plan->chunks.size(); ++i) {
    const PathChunk& from = path.chunk[i];
    ChunkPlan& to = plan->chunks[i];
    to.tokens = from.tokens;
    to.start_s = from.start_s;
    to.end_s = from.end_s;
    for (; index <= from.size_index; ++index) groups_.Extend(Size(index), &group_);
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

std::vector<CdspPlanner::SingleChunk> CdspPlanner::SingleChunks(absl::Span<const double> queue_s,
                                                                int64_t prompt_tokens) {
  return impl_->SingleChunks(queue_s, prompt_tokens);
}

const std::vector<CdspPlanner::SingleChunk>& CdspPlanner::LastSingleChunks() const {
  return impl_->singles();
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
