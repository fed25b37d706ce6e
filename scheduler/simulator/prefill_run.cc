#include "scheduler/simulator/prefill_run.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

TimeUs ToMicroseconds(double seconds) { return std::llround(seconds * 1e6); }

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
    int64_t history = 0;
    for (ChunkPlan& chunk : plan.chunks) {
      double start_s = outcome.end_s;
      for (const int i : chunk.instances)
        start_s = std::max(start_s, free_s[static_cast<size_t>(i)]);
      const int sp = static_cast<int>(chunk.instances.size());
      const double seconds = model.Seconds(sp, history, chunk.tokens);
      if (history == 0) outcome.start_s = start_s;
      outcome.end_s = start_s + seconds;
      for (const int i : chunk.instances) free_s[static_cast<size_t>(i)] = outcome.end_s;
      history += chunk.tokens;
      run.busy_instance_s += sp * seconds;
      ++run.chunks;
      chunk.start_s = start_s;
      chunk.end_s = outcome.end_s;
      if (observer) observer(r, chunk);
    }
    SKEIN_CHECK(history == requests[r].prompt_tokens);
    run.outcomes.push_back(outcome);
    run.end_s = std::max(run.end_s, outcome.end_s);
  }
  return run;
}

namespace {

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
    for (const RollingPlanner::Start& start : starts) {
      const auto request = static_cast<size_t>(start.request);
      if (start.history_tokens == 0) run.outcomes[request].start_s = now_s;
      if (start.last) run.outcomes[request].end_s = start.chunk.end_s;
      run.busy_instance_s += static_cast<double>(start.chunk.instances.size()) *
                             (start.chunk.end_s - start.chunk.start_s);
      ++run.chunks;
      run.end_s = std::max(run.end_s, start.chunk.end_s);
      ends.emplace(start.chunk.end_s, request);
      if (observer) observer(request, start.chunk);
    }
  }
  SKEIN_CHECK(planner->waiting() == 0);
  return run;
}

}  // namespace skein::scheduler
