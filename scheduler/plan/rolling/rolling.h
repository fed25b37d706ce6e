// The rolling planner goes beyond Tetris, which commits a whole plan when a request arrives. Here
// no plan is fixed: whenever a request arrives or a chunk ends, the chunks to start now are chosen
// anew from all requests that wait. Chunk boundaries are safe points, so a plan can be revised as
// long as it has not started.
//
// - Order: the least remaining time first. But a request is late once its latest start has passed:
//   late requests go before all others, in the order of their latest starts. A request may wait for
//   `slack` mean requests and, with `stretch`, in proportion to its own length; a request that has
//   begun is late from then on. So short requests overtake only within that time, however long the
//   queue is. If the latest start moved with the queue, long requests would be overtaken for as
//   long as a queue lasts, and they make up the 99th percentile. No request starves: once it is
//   late, only requests with an earlier latest start go before it, and no later arrival has one
//   once it has waited as long as a request ever may.
//
// - Size: of all legal plans of one or two chunks (Tetris algorithm 3 solves the first) the one
//   with the least sum of time to first token and price x instance-seconds. The time for which its
//   instances wait for each other counts as instance-seconds. The price is what an instance-second
//   costs other requests. Those that wait are known; the cost for later ones depends on the load
//   and is found by simulation, as Tetris finds its improvement rate (rate_profiler.h). Without
//   load the shortest time wins; under load requests run on few instances, where they are
//   efficient.
//
// - Calm: a request that one node can finish within `calm_s` of its arrival does not use more, so
//   that another node stays free. One that is too long for that, or had to wait, may use any plan.
//
// - Only chunks that can start now are started. A chunk that must wait keeps its instances from
//   later requests in this decision, and is planned anew in the next one. While a first chunk runs,
//   the instances of the second are kept for it; when it ends, its request is planned anew before
//   all that are not late.
//
// - At some loads no price and slack does better than plans that are committed on arrival. Then the
//   planner does exactly that (CommitMode): each request is planned once, in the order of arrival,
//   as a baseline would plan it. Such plans are for the whole cluster: while an instance is absent,
//   or if the mode's group does not fit, requests that wait are planned as without the mode.
//
// Sans-io: events in, chunks to start out. The caller runs each chunk on all of its instances at
// once and reports its end, which may be earlier or later than planned.
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
  // A chunk that is not the prompt's last is a multiple of this (the tokens of a block).
  int64_t token_multiple = 1;
  int lookahead = 24;  // requests looked at in one decision
};

class RollingPlanner {
 public:
  // A chunk to run now. Its times are absolute, as the caller's.
  struct Start {
    int64_t request = 0;
    int64_t history_tokens = 0;
    bool last = false;  // of the prompt
    ChunkPlan chunk;
  };

  // `model` must outlive the planner. REQUIRES the smallest SP size fits the cluster.
  RollingPlanner(const LatencyModel& model, const Cluster& cluster,
                 const RollingOptions& options = {});

  // Times are seconds from any origin and never decrease. REQUIRES `request` is not known,
  // prompt_tokens > 0.
  void OnArrival(int64_t request, int64_t prompt_tokens, double now_s);
  // The chunk of `request` that Decide started has ended; false if it was the prompt's last one
  // or the request was cancelled: it is forgotten. REQUIRES a chunk of it runs.
  bool OnChunkFinished(int64_t request, double now_s);
  // Forgets a request; a chunk that runs is still to be reported. Unknown ones are ignored.
  void OnCancelled(int64_t request);

  // In force from the next decision on. From a CommitMode to kNone or back, all that waits is
  // planned anew; from one to another, only what arrives later is planned in the new way.
  void Tune(const RollingTuning& tuning);

  // Appends the chunks to start now. To be called after every event, or after all of one moment.
  void Decide(double now_s, std::vector<Start>* starts);

  // An instance that is absent gets nothing new: it is down for a while, or a number without an
  // instance.
  void SetAbsent(int instance, bool absent);
  // The cluster is another one from now on, with chunks that end on multiples of `token_multiple`;
  // index_of[i] is what instance i is called in it, -1 if it is gone. None is absent. Jobs that
  // held one that is gone should have been cancelled.
  // REQUIRES the smallest SP size fits, and a value below cluster.instances of each instance.
  void Reshape(const Cluster& cluster, const std::vector<int>& index_of, int64_t token_multiple);

  // Of `request`, known and not running: from here on it goes before all requests that are not
  // late too, unless plans are committed. For tests of the bound.
  double LatestStart(int64_t request) const;
  int64_t waiting() const { return static_cast<int64_t>(by_rest_.size()); }

  // An error names the invariant that does not hold:
  //   1. an instance is busy exactly if one running chunk has it;
  //   2. a request waits or runs, never both, and stands in both orders exactly if it waits;
  //   3. tokens started never exceed the prompt's;
  //   4. instances are kept only for requests that run.
  absl::Status CheckInvariants() const;

 private:
  struct Job {
    int64_t prompt_tokens = 0;
    int64_t started_tokens = 0;
    double arrival_s = 0;
    double deadline_s = 0;
    double rest_s = 0;  // shortest time of what is not started
    bool running = false;
    bool cancelled = false;
    CommitQueue::Id plan = 0;  // committed, or 0
    std::vector<int> held;     // instances of the chunks so far
  };
  using Order = std::set<std::pair<double, int64_t>>;  // (key, request)

  // A way to run the first chunk of what is left of a job.
  struct Option {
    double cost = 0;
    double start_s = 0;
    double end_s = 0;
    int64_t tokens = 0;
    int size = 0;
    int chain = -1;         // its instances are the first `size` of chains_[chain]
    int plan_size = 0;      // with the instances of a second chunk
    double plan_end_s = 0;  // of the last chunk
  };
  // Instances in the order in which groups take them; a group of s is the first s.
  struct Chain {
    int home = -1;  // node, or -1 for the chain of a job that holds instances
    std::vector<int> instances;
    std::vector<double> ready_s;  // [i]: when the first i + 1 are free
    std::vector<double> sum_s;    // [i]: sum of when each of the first i + 1 is free
  };

  // The question to Choose: how to run the rest of a job.
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
  int inner_ = 0;    // those that fit a node
  int largest_ = 0;  // the largest of them

  std::map<int64_t, Job> jobs_;
  Order by_latest_start_;
  Order by_rest_;

  double arrivals_ = 0;
  double mean_shortest_s_ = 0;  // of the last arrivals, decaying

  std::vector<uint8_t> busy_;    // [instances]
  std::vector<uint8_t> absent_;  // [instances]
  int absent_count_ = 0;
  std::vector<double> end_s_;      // [instances], planned end of the chunk that runs
  std::vector<int64_t> kept_for_;  // [instances], the request whose next chunk will have it, or -1
  std::vector<double> kept_until_s_;  // [instances], that chunk's planned end

  std::unique_ptr<CommitQueue> committed_;
  std::vector<int64_t> uncommitted_;       // wait for their plan, in this order; only if commits()
  std::vector<CommitQueue::Ready> ready_;  // of one decision; memory is reused

  // State of one decision:
  std::vector<double> free_s_;                // [instances]
  std::vector<std::vector<int>> node_order_;  // [nodes], instances by free_s_
  std::vector<Chain> chains_;                 // of one request; memory is reused
  int chains_used_ = 0;
  int idle_ = 0;
};

}  // namespace skein::scheduler
