// Plans that are fixed once they are made, as those of Tetris and of the fixed baselines. The
// rolling planner keeps its plans here while it works in one of their modes. A chunk starts as soon
// as all of its instances have run what was committed to them before it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// Whose plans are committed.
struct CommitMode {
  enum class Kind { kNone, kTetris, kSingle, kFixed };

  Kind kind = Kind::kNone;
  double improvement_rate = 0;  // of kTetris and kSingle; kSingle at 0 is the greedy baseline
  int sp = 0;                   // of kFixed: a size of the model that fits the cluster

  bool operator==(const CommitMode&) const = default;
};

class CommitQueue {
 public:
  using Id = int64_t;  // of a committed plan, from 1 in the order of committing

  // The part of one request to plan: `tokens` after `history`, on exactly `held` if any.
  struct Rest {
    int64_t request = 0;
    int64_t history = 0;
    int64_t tokens = 0;
    std::vector<int> held;
  };
  // The state of the instances: instance i is busy until end_s[i] (planned) if busy[i].
  struct State {
    double now_s = 0;
    const std::vector<uint8_t>& busy;
    const std::vector<double>& end_s;
  };

  // `model` must outlive it. Boundaries between chunks are multiples of `token_multiple`, counted
  // from a request's history.
  CommitQueue(const LatencyModel& model, const Cluster& cluster, int64_t token_multiple = 1);

  // REQUIRES a mode other than kNone.
  Id Commit(const CommitMode& mode, const Rest& rest, const State& state);
  // Removes and appends the chunks that can start now and marks their instances busy. Their times
  // are still the estimated ones.
  struct Ready {
    int64_t request = 0;
    ChunkPlan chunk;
  };
  void TakeReady(std::vector<uint8_t>* busy, std::vector<Ready>* ready);
  // Forgets what has not started of a plan; unknown ones are ignored.
  void Drop(Id id);
  void Clear();
  // A chunk ended at another time than was planned, or was none of these.
  void Drifted() { exact_ = false; }

 private:
  struct Planned {
    int64_t request = 0;
    int64_t history = 0;
    std::deque<ChunkPlan> chunks;  // not started
  };

  void Foresee(const State& state);
  void Append(double from_s, Planned* planned);

  const LatencyModel& model_;
  const Cluster cluster_;
  const int64_t token_multiple_;
  CdspPlanner planner_;
  Id last_id_ = 0;
  std::map<Id, Planned> plans_;
  std::vector<std::deque<Id>> queues_;  // [instances], one entry for each chunk not started
  std::vector<double> free_s_;          // [instances], when all that is committed has ended
  bool exact_ = false;                  // whether free_s_ is right
  std::vector<double> queue_s_;         // memory is reused
  PrefillPlan plan_;
};

}  // namespace skein::scheduler
