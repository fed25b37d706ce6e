// Waiting, running and starting requests. The choice for one request is in rolling_choice.cc.
#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMeanOver = 200;  // requests

}  // namespace

RollingPlanner::RollingPlanner(const LatencyModel& model, const Cluster& cluster,
                               const RollingOptions& options)
    : model_(model),
      cluster_(cluster),
      options_(options),
      busy_(static_cast<size_t>(cluster.instances), 0),
      absent_(static_cast<size_t>(cluster.instances), 0),
      end_s_(static_cast<size_t>(cluster.instances), 0),
      kept_for_(static_cast<size_t>(cluster.instances), -1),
      kept_until_s_(static_cast<size_t>(cluster.instances), 0),
      committed_(std::make_unique<CommitQueue>(model, cluster, options.token_multiple)),
      free_s_(static_cast<size_t>(cluster.instances), 0) {
  FitSizes();
}

void RollingPlanner::FitSizes() {
  sizes_ = inner_ = largest_ = 0;
  for (const int size : model_.sp_sizes()) {
    if (size > cluster_.instances) break;
    ++sizes_;
    largest_ = size;
    if (size <= cluster_.node_size) inner_ = sizes_;
  }
  SKEIN_CHECK(sizes_ > 0);
  node_order_.assign(static_cast<size_t>(cluster_.nodes()), {});
  for (int i = 0; i < cluster_.instances; ++i) {
    node_order_[static_cast<size_t>(i / cluster_.node_size)].push_back(i);
  }
}

void RollingPlanner::Reshape(const Cluster& cluster, const std::vector<int>& index_of,
                             int64_t token_multiple) {
  std::vector<int64_t> waiting;
  for (const auto& [rest_s, request] : by_rest_) waiting.push_back(request);
  for (const int64_t request : waiting) Dequeue(request, jobs_.at(request));
  const auto n = static_cast<size_t>(cluster.instances);
  const auto move = [&](auto* values, auto none) {
    std::remove_reference_t<decltype(*values)> moved(n, none);
    for (size_t i = 0; i < index_of.size(); ++i) {
      if (index_of[i] >= 0) moved[static_cast<size_t>(index_of[i])] = (*values)[i];
    }
    *values = std::move(moved);
  };
  move(&busy_, uint8_t{0});
  move(&end_s_, 0.0);
  move(&kept_for_, int64_t{-1});
  move(&kept_until_s_, 0.0);
  absent_.assign(n, 0);
  absent_count_ = 0;
  free_s_.assign(n, 0);
  cluster_ = cluster;
  options_.token_multiple = token_multiple;
  FitSizes();
  committed_ = std::make_unique<CommitQueue>(model_, cluster_, options_.token_multiple);
  for (auto& [request, job] : jobs_) {
    for (int& instance : job.held) instance = index_of[static_cast<size_t>(instance)];
    std::erase(job.held, -1);
    std::sort(job.held.begin(), job.held.end());
  }
  for (const int64_t request : waiting) Enqueue(request, &jobs_.at(request));
  PlanAnew();
}

void RollingPlanner::SetAbsent(int instance, bool absent) {
  uint8_t& now = absent_[static_cast<size_t>(instance)];
  if ((now != 0) == absent) return;
  const bool committed = commits();
  now = absent ? 1 : 0;
  absent_count_ += absent ? 1 : -1;
  if (commits() != committed) PlanAnew();
}

bool RollingPlanner::commits() const {
  const CommitMode& mode = options_.tuning.commit;
  const bool fits = mode.kind != CommitMode::Kind::kFixed || mode.sp <= cluster_.instances;
  return mode.kind != CommitMode::Kind::kNone && fits && absent_count_ == 0;
}

// Plans everything that waits.
void RollingPlanner::PlanAnew() {
  committed_->Clear();
  uncommitted_.clear();
  for (auto& [request, job] : jobs_) job.plan = job.uncommitted = 0;
  if (!commits()) return;
  std::fill(kept_for_.begin(), kept_for_.end(), -1);
  for (const auto& [latest_start_s, request] : by_latest_start_) {
    AwaitCommit(request, &jobs_.at(request));
  }
}

void RollingPlanner::AwaitCommit(int64_t request, Job* job) {
  job->uncommitted = ++last_uncommitted_;
  uncommitted_[job->uncommitted] = request;
}

double RollingPlanner::ShortestSeconds(int64_t history, int64_t tokens) const {
  double shortest_s = kInfinity;
  for (int i = 0; i < sizes_; ++i) {
    shortest_s = std::min(shortest_s, model_.SecondsAt(i, history, tokens));
  }
  return shortest_s;
}

void RollingPlanner::Enqueue(int64_t request, Job* job) {
  const int64_t rest = job->prompt_tokens - job->started_tokens;
  job->rest_s = ShortestSeconds(job->started_tokens, rest);
  by_latest_start_.emplace(job->deadline_s - job->rest_s, request);
  by_rest_.emplace(job->rest_s, request);
}

void RollingPlanner::Dequeue(int64_t request, const Job& job) {
  by_latest_start_.erase({job.deadline_s - job.rest_s, request});
  by_rest_.erase({job.rest_s, request});
}

void RollingPlanner::OnArrival(int64_t request, int64_t prompt_tokens, double now_s) {
  SKEIN_CHECK(prompt_tokens > 0);
  const auto [it, is_new] = jobs_.try_emplace(request);
  SKEIN_CHECK(is_new);
  const double shortest_s = ShortestSeconds(0, prompt_tokens);
  ++arrivals_;
  mean_shortest_s_ += (shortest_s - mean_shortest_s_) / std::min(arrivals_, kMeanOver);
  Job& job = it->second;
  job.prompt_tokens = prompt_tokens;
  job.arrival_s = now_s;
  job.deadline_s =
      now_s + options_.tuning.stretch * shortest_s + options_.tuning.slack * mean_shortest_s_;
  Enqueue(request, &job);
  if (commits()) AwaitCommit(request, &job);
}

bool RollingPlanner::OnChunkFinished(int64_t request, double now_s) {
  const auto it = jobs_.find(request);
  SKEIN_CHECK(it != jobs_.end() && it->second.running);
  Job& job = it->second;
  job.running = false;
  for (const int instance : job.held) {
    busy_[static_cast<size_t>(instance)] = 0;
    if (end_s_[static_cast<size_t>(instance)] != now_s) committed_->Drifted();
  }
  Unreserve(request);
  if (job.cancelled || job.started_tokens == job.prompt_tokens) {
    jobs_.erase(it);
    return false;
  }
  job.deadline_s = std::min(job.deadline_s, now_s);  // a request that has begun takes precedence
  Enqueue(request, &job);
  if (commits() && job.plan == 0) AwaitCommit(request, &job);
  return true;
}

void RollingPlanner::OnCancelled(int64_t request) {
  const auto it = jobs_.find(request);
  if (it == jobs_.end()) return;
  it->second.cancelled = true;
  committed_->Drop(it->second.plan);
  uncommitted_.erase(it->second.uncommitted);
  if (it->second.running) return;
  Dequeue(request, it->second);
  jobs_.erase(it);
}

void RollingPlanner::Tune(const RollingTuning& tuning) {
  const bool committed = commits();
  options_.tuning = tuning;
  if (commits() != committed) PlanAnew();
}

double RollingPlanner::LatestStart(int64_t request) const {
  const Job& job = jobs_.at(request);
  return job.deadline_s - job.rest_s;
}

// First late requests by their latest start, then the others by remaining time.
std::vector<int64_t> RollingPlanner::NextRequests(double now_s) const {
  std::vector<int64_t> requests;
  const auto limit = static_cast<size_t>(options_.lookahead);
  auto late = by_latest_start_.begin();
  for (; late != by_latest_start_.end() && late->first < now_s && requests.size() < limit; ++late) {
    requests.push_back(late->second);
  }
  for (auto it = by_rest_.begin(); it != by_rest_.end() && requests.size() < limit; ++it) {
    const Job& job = jobs_.at(it->second);
    if (job.deadline_s - job.rest_s >= now_s) requests.push_back(it->second);
  }
  return requests;
}

void RollingPlanner::Decide(double now_s, std::vector<Start>* starts) {
  if (by_rest_.empty()) return;
  if (commits()) return DecideCommitted(now_s, starts);
  LookAtInstances(now_s);
  if (idle_ == 0) return;
  int64_t behind = waiting();
  for (const int64_t request : NextRequests(now_s)) {
    --behind;
    Job& job = jobs_.at(request);
    const double price = options_.tuning.price + options_.tuning.waiting_weight *
                                                     static_cast<double>(behind) /
                                                     cluster_.instances;
    const Option option = Choose({job, price, now_s});
    if (option.start_s <= now_s) {
      Begin(request, &job, option, starts);
    } else {
      Hold(option, now_s);
    }
    if (idle_ == 0) break;
  }
}

void RollingPlanner::CommitSome(double now_s) {
  const CommitQueue::State state{now_s, busy_, end_s_};
  const size_t most = kCommittedPerInstance * static_cast<size_t>(cluster_.instances);
  while (!uncommitted_.empty() && committed_->size() < most) {
    const auto first = uncommitted_.begin();
    Job& job = jobs_.at(first->second);
    const int64_t rest = job.prompt_tokens - job.started_tokens;
    job.plan = committed_->Commit(options_.tuning.commit,
                                  {first->second, job.started_tokens, rest, job.held}, state);
    job.uncommitted = 0;
    uncommitted_.erase(first);
  }
}

void RollingPlanner::DecideCommitted(double now_s, std::vector<Start>* starts) {
  do {
    CommitSome(now_s);
    StartReady(now_s, starts);
  } while (!ready_.empty() && !uncommitted_.empty());
}

void RollingPlanner::StartReady(double now_s, std::vector<Start>* starts) {
  ready_.clear();
  committed_->TakeReady(&busy_, &ready_);
  for (CommitQueue::Ready& ready : ready_) {
    Job& job = jobs_.at(ready.request);
    Dequeue(ready.request, job);
    ChunkPlan& chunk = ready.chunk;
    const int sp = static_cast<int>(chunk.instances.size());
    chunk.start_s = now_s;
    chunk.end_s = now_s + model_.Seconds(sp, job.started_tokens, chunk.tokens);
    job.held = chunk.instances;
    for (const int i : job.held) end_s_[static_cast<size_t>(i)] = chunk.end_s;
    const int64_t history = job.started_tokens;
    job.started_tokens += chunk.tokens;
    job.running = true;
    starts->push_back(
        {ready.request, history, job.started_tokens == job.prompt_tokens, std::move(chunk)});
  }
}

void RollingPlanner::Begin(int64_t request, Job* job, const Option& option,
                           std::vector<Start>* starts) {
  Dequeue(request, *job);
  const std::vector<int>& chain = chains_[static_cast<size_t>(option.chain)].instances;
  job->held.assign(chain.begin(), chain.begin() + option.size);
  std::sort(job->held.begin(), job->held.end());
  for (const int instance : job->held) {
    busy_[static_cast<size_t>(instance)] = 1;
    end_s_[static_cast<size_t>(instance)] = option.end_s;
  }
  if (option.plan_size > option.size) Reserve(request, option);
  Hold(option, option.start_s);
  starts->push_back({request,
                     job->started_tokens,
                     job->started_tokens + option.tokens == job->prompt_tokens,
                     {option.tokens, job->held, option.start_s, option.end_s}});
  job->started_tokens += option.tokens;
  job->running = true;
}

// Keeps its instances from later requests until its plan has ended.
void RollingPlanner::Hold(const Option& option, double now_s) {
  const std::vector<int>& chain = chains_[static_cast<size_t>(option.chain)].instances;
  for (int i = 0; i < option.plan_size; ++i) {
    const int instance = chain[static_cast<size_t>(i)];
    double& free_s = free_s_[static_cast<size_t>(instance)];
    if (free_s <= now_s) --idle_;
    free_s = option.plan_end_s;
    SortNode(instance / cluster_.node_size);
  }
}

void RollingPlanner::Reserve(int64_t request, const Option& option) {
  const std::vector<int>& chain = chains_[static_cast<size_t>(option.chain)].instances;
  for (int i = 0; i < option.plan_size; ++i) {
    const auto instance = static_cast<size_t>(chain[static_cast<size_t>(i)]);
    if (kept_for_[instance] >= 0) continue;  // already kept for an earlier request
    kept_for_[instance] = request;
    kept_until_s_[instance] = option.plan_end_s;
  }
}

void RollingPlanner::Unreserve(int64_t request) {
  for (int64_t& kept_for : kept_for_) {
    if (kept_for == request) kept_for = -1;
  }
}

absl::Status RollingPlanner::CheckInvariants() const {
  std::vector<uint8_t> busy(busy_.size(), 0);
  size_t waiting = 0;
  for (const auto& [request, job] : jobs_) {
    if (job.started_tokens > job.prompt_tokens) {
      return absl::InternalError(absl::StrCat("3: request ", request));
    }
    const bool late = by_latest_start_.contains({job.deadline_s - job.rest_s, request});
    const bool rest = by_rest_.contains({job.rest_s, request});
    if (late == job.running || rest == job.running) {
      return absl::InternalError(absl::StrCat("2: request ", request));
    }
    waiting += job.running ? 0 : 1;
    for (const int instance : job.held) {
      if (job.running && ++busy[static_cast<size_t>(instance)] > 1) {
        return absl::InternalError(absl::StrCat("1: instance ", instance));
      }
    }
  }
  if (waiting != by_rest_.size() || waiting != by_latest_start_.size()) {
    return absl::InternalError("2: an order contains a request that does not wait");
  }
  for (const int64_t request : kept_for_) {
    const auto it = jobs_.find(request);
    if (request >= 0 && (it == jobs_.end() || !it->second.running)) {
      return absl::InternalError(absl::StrCat("4: request ", request));
    }
  }
  if (busy != busy_)
    return absl::InternalError("1: the busy flags do not match the running chunks");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
