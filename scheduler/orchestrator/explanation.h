// Why a request was planned as it was: what `skeinctl explain` shows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// The times of a plan count from its decision; -1: not yet.
struct ChunkExplanation {
  int64_t tokens = 0;
  std::vector<InstanceId> instances;  // by rank
  double foreseen_start_s = 0;
  double foreseen_end_s = 0;
  TimeUs started_us = -1;  // as reported
  TimeUs ended_us = -1;
};

// The whole prompt as one chunk.
struct AlternativeExplanation {
  int sp = 0;
  double start_s = 0;
  double ttft_s = 0;
  std::string why;  // it was, or was not, chosen
};

struct PlanExplanation {
  Epoch epoch;
  TimeUs decided_us = 0;  // from the request's submission
  std::string how;        // the rule that decided
  double improvement_rate = 0;
  double ttft_s = 0;                                   // foreseen
  std::vector<std::pair<InstanceId, double>> queue_s;  // of the pool
  std::vector<ChunkExplanation> chunks;
  std::vector<AlternativeExplanation> alternatives;
  std::string lost;  // why it was given up, if it was
};

// Times count from the submission; -1: not yet.
struct Explanation {
  RequestId id;
  std::vector<std::string> names;  // as its client sees it
  std::string model;
  int64_t prompt_tokens = 0;
  std::string policy;
  std::string state;         // now, or how it ended
  TimeUs age_us = 0;         // since its submission
  TimeUs placed_us = -1;     // a decode instance was reserved
  TimeUs prefilled_us = -1;  // all KV was taken; `ended_us` when a report told so after the end
  TimeUs ended_us = -1;
  std::vector<PlanExplanation> plans;  // the latest last

  // `request` is one of its names, or its id as logs write it.
  bool Answers(const std::string& request) const;
};

// A request ended, and these instances had not reported yet that they are done with it.
struct AwaitedReports {
  Epoch epoch;
  std::set<InstanceId> prefill;  // the members whose part may be committed; all others' are
  InstanceId decode;
  std::string state;  // how it ended if its KV was taken
};

// The latest requests that have ended.
class FinishedExplanations {
 public:
  explicit FinishedExplanations(size_t max) : max_(max) {}

  // `reports` names no prefill instance where no later report can say that its KV was taken.
  void Add(TimeUs now, Explanation explanation, AwaitedReports reports);
  // `instance` is done with a request that has ended. Once all KV is known to have been taken, the
  // request was prefilled, and its state is the one told to Add.
  void TakeEnded(RequestId id, Epoch epoch, InstanceId instance, bool committed);
  // Appends those that answer, the latest first, until `out` has `limit`.
  void Find(const std::string& request, TimeUs now, size_t limit,
            std::vector<Explanation>* out) const;
  size_t size() const { return finished_.size(); }

 private:
  struct Finished {
    TimeUs submitted_us = 0;
    Explanation explanation;
  };

  size_t max_;
  std::deque<Finished> finished_;
  uint64_t dropped_ = 0;  // of all that were added
  struct Awaited {
    uint64_t number = 0;  // of all that were added
    AwaitedReports reports;
  };
  std::map<RequestId, Awaited> awaited_;  // of those in finished_
};

}  // namespace skein::scheduler
