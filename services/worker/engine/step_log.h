// StepLog: how long an instance's latest steps took, for a latency profile. Only steps of one
// prompt chunk, or piece of one, are kept: the time of a step of several sequences is no sample of
// equation 1 (Tetris, section 5.1). Where several instances compute it together, each keeps its
// own time, from when it began, so that the one that began last has the shortest.
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "scheduler/vocabulary/token_span.h"
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
  int64_t chunk_tokens = 0;  // of all instances that computed it together
  double seconds = 0;
  int instances = 1;
  int tp = 1;  // as PlanChunk has it
};

class StepLog {
 public:
  explicit StepLog(size_t entries_max = 4096) : entries_max_(entries_max) {}

  void Add(const scheduler::RunStep& step, double seconds) {
    if (step.sequences.size() != 1 || step.probe) return;
    const scheduler::StepSequence& only = step.sequences.front();
    if (step.group.has_value()) return;
    if (only.ring != nullptr) return Keep(TimeOf(*only.ring, seconds));
    if (only.position + only.count > scheduler::PromptTokens(*only.spec)) return;
    Keep({.history_tokens = only.position, .chunk_tokens = only.count, .seconds = seconds});
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
  static StepTime TimeOf(const scheduler::RingPart& part, double seconds) {
    int64_t tokens = 0;
    for (const std::vector<TokenSpan>& of_rank : part.piece.spans) {
      for (const TokenSpan& span : of_rank) tokens += span.count;
    }
    return {.history_tokens = part.token_end - tokens,
            .chunk_tokens = tokens,
            .seconds = seconds,
            .instances = static_cast<int>(part.piece.spans.size()),
            .tp = part.tp};
  }

  void Keep(StepTime time) {
    std::lock_guard lock(mu_);
    time.serial = ++last_serial_;
    entries_.push_back(time);
    if (entries_.size() > entries_max_) entries_.pop_front();
  }

  const size_t entries_max_;
  mutable std::mutex mu_;
  uint64_t last_serial_ = 0;
  std::deque<StepTime> entries_;
};

}  // namespace skein::services
