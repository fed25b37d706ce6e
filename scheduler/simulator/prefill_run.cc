#include "scheduler/simulator/prefill_run.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "scheduler/plan/tensor_groups.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// The same bits as the planner's time where there are no shapes.
double SecondsOf(const LatencyModel& model, int sp, int tp, int64_t history, int64_t tokens) {
  return model.HasShapes() ? model.SecondsWith(sp, tp, history, tokens)
                           : model.Seconds(sp, history, tokens);
}

}  // namespace

TimeUs ToMicroseconds(double seconds) { return std::llround(seconds * 1e6); }

void PrefillRun::CountChunk(const ChunkPlan& chunk) {
  const auto instances = static_cast<int>(chunk.instances.size());
  busy_instance_s += instances * (chunk.end_s - chunk.start_s);
  ++chunks;
  ++shapes[{instances / chunk.tp, chunk.tp}];
  end_s = std::max(end_s, chunk.end_s);
}

PrefillRun RunCommitting(const std::vector<SimRequest>& requests, const LatencyModel& model,
                         const Cluster& cluster, const CommittingPlanner& planner,
                         const ChunkObserver& observer) {
  PrefillRun run;
  run.outcomes.reserve(requests.size());
  std::vector<double> free_s(static_cast<size_t>(cluster.instances), 0);
  std::vector<double> queue_s(free_s.size(), 0);
  PrefillPlan plan;
  for (size_t r = 0; r < requests.size(); ++r) {
    const double arrival_s = requests[r].arrival_s;
    for (size_t i = 0; i < free_s.size(); ++i) queue_s[i] = std::max(0.0, free_s[i] - arrival_s);
    planner(requests[r], queue_s, &plan);
    PrefillOutcome outcome{arrival_s, arrival_s};
    PlanRanks ranks(cluster);
    int64_t history = 0;
    for (ChunkPlan& chunk : plan.chunks) {
      double start_s = outcome.end_s;
      for (const int i : chunk.instances)
        start_s = std::max(start_s, free_s[static_cast<size_t>(i)]);
      const int sp = static_cast<int>(chunk.instances.size());
      chunk.tp = ranks.AddChunk(model, chunk.instances, history, chunk.tokens);
      const double seconds = SecondsOf(model, sp, chunk.tp, history, chunk.tokens);
      if (history == 0) outcome.start_s = start_s;
      outcome.end_s = start_s + seconds;
      for (const int i : chunk.instances) free_s[static_cast<size_t>(i)] = outcome.end_s;
      history += chunk.tokens;
      chunk.start_s = start_s;
      chunk.end_s = outcome.end_s;
      run.CountChunk(chunk);
      if (observer) observer(r, chunk);
    }
    SKEIN_CHECK(history == requests[r].prompt_tokens);
    run.outcomes.push_back(outcome);
  }
  return run;
}

namespace {

// The ranks of the requests that have begun, by request; nothing without tensor shapes.
class RanksByRequest {
 public:
  explicit RanksByRequest(const RollingPlanner& planner)
      : model_(planner.model()), cluster_(planner.cluster()) {}

  // Gives the chunk its shape, and the end that it has in it.
  void Shape(RollingPlanner::Start* start) {
    if (!model_.HasShapes()) return;
    ChunkPlan& chunk = start->chunk;
    const auto ranks = ranks_.try_emplace(start->request, cluster_).first;
    const int64_t history = start->history_tokens;
    chunk.tp = ranks->second.AddChunk(model_, chunk.instances, history, chunk.tokens);
    const auto sp = static_cast<int>(chunk.instances.size());
    chunk.end_s = chunk.start_s + SecondsOf(model_, sp, chunk.tp, history, chunk.tokens);
    if (start->last) ranks_.erase(ranks);
  }

 private:
  const LatencyModel& model_;
  const Cluster cluster_;
  std::map<int64_t, PlanRanks> ranks_;
};

// Ends of running chunks: (time, request), earliest first.
using Ends = std::priority_queue<std::pair<double, size_t>, std::vector<std::pair<double, size_t>>,
                                 std::greater<>>;

}  // namespace

PrefillRun RunRolling(const std::vector<SimRequest>& requests, RollingPlanner* planner,
                      RollingSelector* selector, const ChunkObserver& observer) {
  PrefillRun run;
  run.outcomes.resize(requests.size());
  Ends ends;
  std::vector<RollingPlanner::Start> starts;
  RanksByRequest ranks(*planner);
  size_t next = 0;
  while (next < requests.size() || !ends.empty()) {
    const bool ended =
        !ends.empty() && (next == requests.size() || ends.top().first <= requests[next].arrival_s);
    const double now_s = ended ? ends.top().first : requests[next].arrival_s;
    for (; !ends.empty() && ends.top().first <= now_s; ends.pop()) {
      planner->OnChunkFinished(static_cast<int64_t>(ends.top().second), now_s);
    }
    for (; next < requests.size() && requests[next].arrival_s <= now_s; ++next) {
      planner->OnArrival(static_cast<int64_t>(next), requests[next].prompt_tokens, now_s);
      if (selector == nullptr) continue;
      selector->OnArrival(ToMicroseconds(now_s));
      planner->Tune(selector->Current(ToMicroseconds(now_s)));
    }
    starts.clear();
    planner->Decide(now_s, &starts);
    for (RollingPlanner::Start& start : starts) {
      ranks.Shape(&start);
      const auto request = static_cast<size_t>(start.request);
      if (start.history_tokens == 0) run.outcomes[request].start_s = now_s;
      if (start.last) run.outcomes[request].end_s = start.chunk.end_s;
      run.CountChunk(start.chunk);
      ends.emplace(start.chunk.end_s, request);
      if (observer) observer(request, start.chunk);
    }
  }
  SKEIN_CHECK(planner->waiting() == 0);
  return run;
}

}  // namespace skein::scheduler
