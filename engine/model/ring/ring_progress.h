// How the threads of one ring step (compute, ring, moves) wait for one another: counters that
// only grow, and one failure that ends all waits. Thread-safe.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "engine/engine.h"

namespace skein::engine {

enum class Milestone {
  kWritten,   // layers whose new KV is stored
  kMoved,     // layers whose moves are done
  kPassed,    // layers whose ring has sent and received all
  kFilled,    // ring buffers filled, in all
  kConsumed,  // of those, how many attention is done with
};

class RingProgress {
 public:
  // `step` outlives this.
  explicit RingProgress(const RingStep& step) : step_(step) {}

  void Reach(Milestone milestone, int64_t value);

  // Waits until the milestone is at least `value`. False when the step failed.
  bool Await(Milestone milestone, int64_t value);

  // Ends the step: wakes all and breaks the communicators. The first failure counts. A status of a
  // collective becomes what Engine::Step answers, UNAVAILABLE, DEADLINE_EXCEEDED or
  // INVALID_ARGUMENT.
  void Fail(const absl::Status& status);

  absl::Status status() const;

 private:
  const RingStep& step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<int64_t, 5> reached_ = {};
  absl::Status status_;
};

}  // namespace skein::engine
