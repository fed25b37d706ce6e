// Plans that are fixed once they are made, like those of Tetris and the fixed baselines. The
// rolling planner keeps its plans here while it imitates one of them. A chunk starts as soon as all
// its instances have run the work committed to them before it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// The policy whose plans are committed.
struct CommitMode {
  enum class Kind { kNone, kTetris, kSingle, kFixed };

  Kind kind = Kind::kNone;
  double improvement_rate = 0;  // for kTetris and kSingle; kSingle with 0 is the greedy baseline
  int sp = 0;                   // for kFixed: a size of the model that fits the cluster

  bool operator==(const CommitMode&) const = default;
};

class CommitQueue {
 public:
  using Id = int64_t;  // of a committed plan, from 1 in commit order

  // The part of a request to plan: `tokens` after `history`; on exactly `held` if not empty.
  struct Rest {
    int64_t request = 0;
    int64_t history = 0;
    int64_t tokens = 0;
    std::vector<int> held;
  };
  // State of the instances: instance i is busy until end_s[i] (planned) if busy[i].
  struct State {
    double now_s = 0;
    const std::vector<uint8_t>& busy;
    const std::vector<double>& end_s;
  };

  // `model` must outlive it. Chunk boundaries are multiples of `token_multiple`, counted from a
  // request's history.
  CommitQueue(const LatencyModel& model, const Cluster& cluster, int64_t token_multiple = 1);

  // REQUIRES a mode other than kNone.
  Id Commit(const CommitMode& mode, const Rest& rest, const State& state);
  // Removes and appends the chunks that can start now and marks their instances busy. Their times
  // are still the estimates.
  struct Ready {
    int64_t request = 0;
    ChunkPlan chunk;
  };
  void TakeReady(std::vector<uint8_t>* busy, std::vector<Ready>* ready);
  // Drops a plan's chunks that have not started. Unknown ids are ignored.
  void Drop(Id id);
  void Clear();
  size_t size() const { return plans_.size(); }  // plans with chunks that have not started
  // A chunk ended at another time than planned, or was not planned here.
  void Drifted() { exact_ = false; }

 private:
  struct Planned {
    int64_t request = 0;
    int64_t history = 0;
    std::deque<ChunkPlan> chunks;  // not started
  };

  void Estimate(const State& state);
  void Append(double from_s, Planned* planned);

  const LatencyModel& model_;
  const Cluster cluster_;
  const int64_t token_multiple_;
  CdspPlanner planner_;
  Id last_id_ = 0;
  std::map<Id, Planned> plans_;
  std::vector<std::deque<Id>> queues_;  // [instances], one entry for each chunk not started
  std::vector<double> free_s_;          // [instances], end of all committed work
  bool exact_ = false;                  // whether free_s_ is up to date
  std::vector<double> queue_s_;         // memory is reused
  PrefillPlan plan_;
};

}  // namespace skein::scheduler
