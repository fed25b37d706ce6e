// SequenceBatch: one continuous batch with what waits to enter it. A step decodes one token of each
// sequence that has its prompt, and fills the rest with slices of prompts (chunked prefill), in the
// order of entry. Waiting requests enter by priority, then by arrival, as long as the step has
// tokens left, the batch a place, and `fits` agrees.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

struct BatchSequence {
  size_t request = 0;
  int64_t to_compute = 0;  // tokens that are not in the KV: the prompt, and output made elsewhere
  int64_t computed = 0;    // tokens in the KV
  int64_t made = 0;        // output tokens so far
  int64_t slice = 0;       // of the step that runs; 0: it pauses, or decodes
};

struct SequenceLimits {
  int64_t step_tokens = 2048;
  int64_t sequences = 256;
};

class SequenceBatch {
 public:
  // Whether the request, with `made` output tokens, may enter; takes its KV if so.
  using Fits = std::function<bool(size_t request)>;
  // A sequence made its `index`-th output token (from 0) in the step that ended.
  using Made = std::function<void(const BatchSequence& sequence, int64_t index)>;

  // `requests` outlives this.
  SequenceBatch(const std::vector<GroupRequest>* requests, const SequenceLimits& limits)
      : requests_(requests), limits_(limits) {}

  void Add(size_t request, int64_t made);
  // Lets waiting requests enter. Then the tokens that a step would run now.
  int64_t Admit(const Fits& fits);
  int64_t StepTokens() const;  // of a step of those that run
  StepWork BeginStep();
  // Sequences that have all their output leave; `made` is called first.
  void EndStep(const Made& made);

  // Between steps: all that wait; all that wait or run, which leave their KV behind.
  std::vector<std::pair<size_t, int64_t>> TakeWaiting();  // request, output made
  std::vector<std::pair<size_t, int64_t>> TakeAll();

  bool Idle() const { return running_.empty() && waiting_.empty(); }
  const std::vector<BatchSequence>& running() const { return running_; }
  size_t waiting() const { return waiting_.size(); }
  // That run or wait.
  int64_t sequences() const { return static_cast<int64_t>(running_.size() + waiting_.size()); }
  int64_t held_tokens() const;        // in the KV, by sequences that run
  int64_t tokens_to_compute() const;  // of those that run or wait
  std::vector<size_t> Requests() const;

 private:
  struct Waiting {
    int32_t urgency;  // the negated priority
    size_t request;
    int64_t made;
    auto operator<=>(const Waiting&) const = default;
  };

  const std::vector<GroupRequest>* requests_;
  SequenceLimits limits_;
  std::vector<BatchSequence> running_;
  std::set<Waiting> waiting_;
};

}  // namespace skein::scheduler
