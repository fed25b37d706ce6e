// The rolling planner goes beyond Tetris, which commits a whole plan when a request arrives. Here
// no plan is fixed: whenever a request arrives or a chunk ends, the planner chooses the chunks to
// start now from all waiting requests. Chunk boundaries are safe points, so the part of a plan that
// has not started can be revised.
//
// - Order: least remaining time first. A request is late once its latest start has passed; late
//   requests go before all others, in the order of their latest starts. A request may wait for
//   `slack` mean requests plus, with `stretch`, a time proportional to its own length; a request
//   that has begun counts as late. So short requests overtake only within that time, however long
//   the queue is. The latest start does not move with the queue; otherwise long requests, which
//   make up the 99th percentile, would be overtaken as long as a queue lasts. No request starves:
//   once it is late, only requests with an earlier latest start go before it, and later arrivals no
//   longer have one once it has waited for the longest allowed time.
//
// - Size: of all legal plans of one or two chunks (Tetris algorithm 3 solves the first), the one
//   with the least sum of time to first token and price x instance-seconds. The time for which its
//   instances wait for each other counts as instance-seconds. The price is the cost of an
//   instance-second for other requests. For waiting requests it is known; for later ones it depends
//   on the load and is found by simulation, like Tetris's improvement rate (rate_profiler.h).
//   Without load the shortest time wins; under load requests run on few instances, where they are
//   efficient.
//
// - Calm: a request that one node can finish within `calm_s` of its arrival uses only one node, so
//   that another node stays free. A request that is too long for that, or had to wait, may use any
//   plan.
//
// - Only chunks that can start now are started. A chunk that must wait keeps its instances from
//   later requests in this decision, and is planned again in the next one. While a first chunk
//   runs, the instances of the second are kept for it. When the first ends, its request is planned
//   again before all requests that are not late.
//
// - At some loads, no price and slack is better than committing plans on arrival. Then the planner
//   does exactly that (CommitMode): each request is planned once, in the order of arrival, like a
//   baseline. Such plans assume the whole cluster: while an instance is absent, or if the mode's
//   group does not fit, waiting requests are planned as without the mode.
//
// Cost. A decision looks at the instances and at `lookahead` requests. With committed plans it also
// looks at the plans that have not started, at most kCommittedPerInstance per instance; later
// arrivals are committed once others have started. Only a change of the mode or of the cluster
// looks at all requests.
//
// Sans-io: events in, chunks to start out. The caller runs each chunk on all its instances at once
// and reports its end, which may be earlier or later than planned.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/rolling/commit_queue.h"
#include "scheduler/plan/rolling/rolling_tuning.h"

namespace skein::scheduler {

struct RollingOptions {
  RollingTuning tuning;
  int64_t min_chunk_tokens = 512;
  // Every chunk except the prompt's last is a multiple of this (the tokens of a block).
  int64_t token_multiple = 1;
  int lookahead = 24;  // limit of requests considered in one decision
};

class RollingPlanner {
 public:
  // A chunk to run now. Times are absolute, on the caller's clock.
  struct Start {
    int64_t request = 0;
    int64_t history_tokens = 0;
    bool last = false;  // the prompt's last chunk
    ChunkPlan chunk;
  };

  // `model` must outlive the planner. REQUIRES the smallest SP size fits the cluster.
  RollingPlanner(const LatencyModel& model, const Cluster& cluster,
                 const RollingOptions& options = {});

  static constexpr size_t kCommittedPerInstance = 16;

  // Times are seconds from any origin and never decrease. REQUIRES `request` is unknown,
  // prompt_tokens > 0.
  void OnArrival(int64_t request, int64_t prompt_tokens, double now_s);
  // The chunk of `request` that Decide started has ended. False: it was the prompt's last one or
  // the request was cancelled, and the request is forgotten. REQUIRES one of its chunks runs.
  bool OnChunkFinished(int64_t request, double now_s);
  // Forgets a request; the end of a running chunk must still be reported. Unknown ids are ignored.
  void OnCancelled(int64_t request);

  // Takes effect with the next decision. From a CommitMode to kNone or back, all waiting requests
  // are planned again; from one CommitMode to another, only later arrivals use the new one.
  void Tune(const RollingTuning& tuning);

  // Appends the chunks to start now. Call after every event, or after all events of one moment.
  void Decide(double now_s, std::vector<Start>* starts);

  // An absent instance gets nothing new: it is down for a while, or the number has no instance.
  void SetAbsent(int instance, bool absent);
  // Replaces the cluster; chunks end on multiples of `token_multiple`. index_of[i] is the new
  // number of instance i, -1 if it is gone. No instance is absent afterwards. Cancel requests that
  // held a gone instance first.
  // REQUIRES the smallest SP size fits, and all new numbers are below cluster.instances.
  void Reshape(const Cluster& cluster, const std::vector<int>& index_of, int64_t token_multiple);

  // The latest start of `request`, which is known and not running: from then on it goes before all
  // requests that are not late, unless plans are committed. For tests of the bound.
  double LatestStart(int64_t request) const;
  int64_t committed() const { return static_cast<int64_t>(committed_->size()); }  // not started
  const LatencyModel& model() const { return model_; }
  const Cluster& cluster() const { return cluster_; }
  int64_t waiting() const { return static_cast<int64_t>(by_rest_.size()); }

  // An error names the violated invariant:
  //   1. an instance is busy exactly if one running chunk has it;
  // 2. a request waits or runs, never both, and is in both orders exactly if it waits;
  //   3. tokens started never exceed the prompt's;
  // 4. instances are kept only for running requests.
  absl::Status CheckInvariants() const;

 private:
  struct Job {
    int64_t prompt_tokens = 0;
    int64_t started_tokens = 0;
    double arrival_s = 0;
    double deadline_s = 0;
    double rest_s = 0;  // shortest time for the part that has not started
    bool running = false;
    bool cancelled = false;
    CommitQueue::Id plan = 0;  // 0: no committed plan
    int64_t uncommitted = 0;   // its position in uncommitted_; 0: none
    std::vector<int> held;     // instances of the chunks so far
  };
  using Order = std::set<std::pair<double, int64_t>>;  // (key, request)

  // A way to run the first chunk of a job's remaining tokens.
  struct Option {
    double cost = 0;
    double start_s = 0;
    double end_s = 0;
    int64_t tokens = 0;
    int size = 0;
    int chain = -1;         // it uses the first `size` instances of chains_[chain]
    int plan_size = 0;      // including the instances of a second chunk
    double plan_end_s = 0;  // end of the last chunk
  };
  // Instances in the order in which groups take them; a group of size s is the first s.
  struct Chain {
    int home = -1;  // node; -1: chain of a job that holds instances
    std::vector<int> instances;
    std::vector<double> ready_s;  // [i]: when the first i + 1 are free
    std::vector<double> sum_s;    // [i]: sum of when each of the first i + 1 is free
  };

  // Input of Choose: how to run the rest of a job.
  struct Ask {
    const Job& job;
    double price;
    double now_s;
  };

  void FitSizes();
  double ShortestSeconds(int64_t history, int64_t tokens) const;
  void Enqueue(int64_t request, Job* job);
  void Dequeue(int64_t request, const Job& job);
  bool commits() const;
  void PlanAnew();
  void AwaitCommit(int64_t request, Job* job);
  void CommitSome(double now_s);
  void StartReady(double now_s, std::vector<Start>* starts);
  void DecideCommitted(double now_s, std::vector<Start>* starts);
  std::vector<int64_t> NextRequests(double now_s) const;
  void LookAtInstances(double now_s);
  void SortNode(int node);
  int HomeFor(int size) const;
  int ChainAt(int home, const Job& job);
  void ExtendChain(const Job& job, Chain* chain) const;
  void FinishChain(Chain* chain) const;
  Option Choose(const Ask& ask);
  void TryPlans(const Ask& ask, int from, int to, Option* best);
  void TrySingle(const Ask& ask, int index, int chain, Option* best) const;
  void TryPair(const Ask& ask, int first, int second, int chain, Option* best) const;
  void Begin(int64_t request, Job* job, const Option& option, std::vector<Start>* starts);
  void Hold(const Option& option, double now_s);
  void Reserve(int64_t request, const Option& option);
  void Unreserve(int64_t request);

  const LatencyModel& model_;
  Cluster cluster_;
  RollingOptions options_;
  int sizes_ = 0;    // SP sizes that fit the cluster
  int inner_ = 0;    // SP sizes that fit a node
  int largest_ = 0;  // the largest of these

  std::map<int64_t, Job> jobs_;
  Order by_latest_start_;
  Order by_rest_;

  double arrivals_ = 0;
  double mean_shortest_s_ = 0;  // decaying mean over recent arrivals

  std::vector<uint8_t> busy_;    // [instances]
  std::vector<uint8_t> absent_;  // [instances]
  int absent_count_ = 0;
  std::vector<double> end_s_;         // [instances], planned end of the running chunk
  std::vector<int64_t> kept_for_;     // [instances], request whose next chunk gets it; -1: none
  std::vector<double> kept_until_s_;  // [instances], that chunk's planned end

  std::unique_ptr<CommitQueue> committed_;
  // Requests without a plan, by order of arrival; only if commits().
  std::map<int64_t, int64_t> uncommitted_;
  int64_t last_uncommitted_ = 0;
  std::vector<CommitQueue::Ready> ready_;  // within one decision; memory is reused

  // State of one decision:
  std::vector<double> free_s_;                // [instances]
  std::vector<std::vector<int>> node_order_;  // [nodes], instances by free_s_
  std::vector<Chain> chains_;                 // of one request; memory is reused
  int chains_used_ = 0;
  int idle_ = 0;
};

}  // namespace skein::scheduler
