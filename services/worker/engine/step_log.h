// StepLog: how long an instance's latest steps took, for a latency profile. Only steps of one
// prompt chunk alone, on this instance alone, are kept: the time of a step of several sequences is
// no sample of equation 1 (Tetris, section 5.1), and that of a step with others is none of this
// instance.
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "scheduler/worker/steps/step.h"

namespace skein::services {

// That this instance computes in the step.
inline int64_t TokensOf(const scheduler::RunStep& step) {
  int64_t tokens = 0;
  for (const scheduler::StepSequence& sequence : step.sequences) tokens += sequence.count;
  return tokens;
}

struct StepTime {
  uint64_t serial = 0;  // 1, 2, 3, … of this process
  int64_t history_tokens = 0;
  int64_t chunk_tokens = 0;
  double seconds = 0;
};

class StepLog {
 public:
  explicit StepLog(size_t entries_max = 4096) : entries_max_(entries_max) {}

  void Add(const scheduler::RunStep& step, double seconds) {
    if (step.sequences.size() != 1 || step.probe) return;
    const scheduler::StepSequence& only = step.sequences.front();
    if (step.IsJoint()) return;
    if (only.position + only.count > scheduler::PromptTokens(*only.spec)) return;
    std::lock_guard lock(mu_);
    entries_.push_back({++last_serial_, only.position, only.count, seconds});
    if (entries_.size() > entries_max_) entries_.pop_front();
  }

  // The kept ones with a serial above `after`, oldest first.
  std::vector<StepTime> After(uint64_t after) const {
    std::lock_guard lock(mu_);
    std::vector<StepTime> out;
    for (const StepTime& entry : entries_) {
      if (entry.serial > after) out.push_back(entry);
    }
    return out;
  }

 private:
  const size_t entries_max_;
  mutable std::mutex mu_;
  uint64_t last_serial_ = 0;
  std::deque<StepTime> entries_;
};

}  // namespace skein::services
