#include "scheduler/plan/rolling/commit_queue.h"

#include <algorithm>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/round.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

CommitQueue::CommitQueue(const LatencyModel& model, const Cluster& cluster, int64_t token_multiple)
    : model_(model),
      cluster_(cluster),
      token_multiple_(token_multiple),
      planner_(model, cluster),
      queues_(static_cast<size_t>(cluster.instances)),
      free_s_(queues_.size(), 0),
      queue_s_(queues_.size(), 0) {}

CommitQueue::Id CommitQueue::Commit(const CommitMode& mode, const Rest& rest, const State& state) {
  if (!exact_) Estimate(state);
  for (size_t i = 0; i < free_s_.size(); ++i) {
    queue_s_[i] = std::max(0.0, free_s_[i] - state.now_s);
  }
  Planned& planned = plans_[++last_id_];
  planned.request = rest.request;
  planned.history = rest.history;
  if (!rest.held.empty()) {
    planned.chunks.push_back({rest.tokens, rest.held, 0, 0});
  } else {
    switch (mode.kind) {
      case CommitMode::Kind::kFixed:
        PlanFixedSp(model_, cluster_, mode.sp, queue_s_, rest.tokens, &plan_);
        break;
      case CommitMode::Kind::kSingle:
        planner_.PlanSingleChunk(queue_s_, rest.tokens, {mode.improvement_rate}, &plan_);
        break;
      default:
        planner_.Plan(queue_s_, rest.tokens, {mode.improvement_rate}, &plan_);
    }
    RoundToBlocks(token_multiple_, &plan_);
    planned.chunks.assign(plan_.chunks.begin(), plan_.chunks.end());
  }
  Append(state.now_s, &planned);
  for (const ChunkPlan& chunk : planned.chunks) {
    for (const int i : chunk.instances) queues_[static_cast<size_t>(i)].push_back(last_id_);
  }
  return last_id_;
}

void CommitQueue::TakeReady(std::vector<uint8_t>* busy, std::vector<Ready>* ready) {
  for (auto& queue : queues_) {
    if (queue.empty()) continue;
    const Id id = queue.front();
    Planned& planned = plans_.at(id);
    const std::vector<int>& instances = planned.chunks.front().instances;
    const bool can = std::all_of(instances.begin(), instances.end(), [&](int instance) {
      const auto i = static_cast<size_t>(instance);
      return !(*busy)[i] && !queues_[i].empty() && queues_[i].front() == id;
    });
    if (!can) continue;
    for (const int i : instances) {
      queues_[static_cast<size_t>(i)].pop_front();
      (*busy)[static_cast<size_t>(i)] = 1;
    }
    planned.history += planned.chunks.front().tokens;
    ready->push_back({planned.request, std::move(planned.chunks.front())});
    planned.chunks.pop_front();
    if (planned.chunks.empty()) plans_.erase(id);
  }
}

void CommitQueue::Drop(Id id) {
  if (plans_.erase(id) == 0) return;
  for (auto& queue : queues_) std::erase(queue, id);
  exact_ = false;
}

void CommitQueue::Clear() {
  plans_.clear();
  for (auto& queue : queues_) queue.clear();
  exact_ = false;
}

// When the instances are free after all committed work, given their current chunks.
void CommitQueue::Estimate(const State& state) {
  for (size_t i = 0; i < free_s_.size(); ++i) {
    free_s_[i] = state.busy[i] ? std::max(state.end_s[i], state.now_s) : state.now_s;
  }
  for (auto& [id, planned] : plans_) Append(state.now_s, &planned);
  exact_ = true;
}

// Computes the times of its chunks after the work already committed.
void CommitQueue::Append(double from_s, Planned* planned) {
  double end_s = from_s;
  int64_t history = planned->history;
  for (ChunkPlan& chunk : planned->chunks) {
    chunk.start_s = end_s;
    for (const int i : chunk.instances) {
      chunk.start_s = std::max(chunk.start_s, free_s_[static_cast<size_t>(i)]);
    }
    const int sp = static_cast<int>(chunk.instances.size());
    chunk.end_s = end_s = chunk.start_s + model_.Seconds(sp, history, chunk.tokens);
    for (const int i : chunk.instances) free_s_[static_cast<size_t>(i)] = end_s;
    history += chunk.tokens;
  }
}

}  // namespace skein::scheduler
