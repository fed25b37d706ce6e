// StepEngine: runs step plans on one device (design.md, section 4). A sequence is admitted once and
// then named by its handle; a launched step completes later. Implementations: InlineEngine and
// ThreadedEngine, adapters of the synchronous Engine (engine.h), which a later change deletes. The
// conformance suite is step_engine_test.cc.
//
// Threads: Spec and KvRegions are immutable and may be read from any thread, Poll may be called by
// any; one thread calls the rest.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/sampling/sampling_params.h"

namespace skein::engine {

struct SequenceHandle {
  uint64_t value = 0;
  auto operator<=>(const SequenceHandle&) const = default;
};

// What is the same in all steps of a sequence.
struct SequenceInfo {
  std::shared_ptr<const std::vector<int32_t>> prompt;
  std::shared_ptr<const SamplingParams> sampling;
  // Each step tells the logprobs of the prompt's tokens that follow those that it ran.
  bool prompt_logprobs = false;
};

// What one sequence runs in a step: tokens [position, position + count) of prompt ++ output.
struct PlannedSequence {
  SequenceHandle sequence;
  int64_t position = 0;
  int64_t count = 0;
  std::vector<int32_t> blocks;  // in order; cover position + count tokens; ring: those of its spans
  std::shared_ptr<const std::vector<int32_t>> output;  // so far; null: none
  bool sample = false;                                 // a token after the last of them
  uint64_t token_index = 0;                            // of that token in the output
};

// The other instances of a ring step.
struct RingMeeting {
  std::vector<TokenSpan> spans;  // of this rank
  // Called when the step begins, on whichever thread runs it: the step with its communicators, good
  // until `leave`. Not OK: the step ends with this, and nothing was run.
  std::function<absl::StatusOr<RingStep>()> enter;
  // Called when a step that was entered has ended, with its status.
  std::function<void(const absl::Status&)> leave;
};

struct StepPlan {
  uint64_t number = 0;  // the caller's
  std::vector<PlannedSequence> sequences;
  std::optional<RingMeeting> ring;  // with its only sequence; else this instance steps alone
  // Layer by layer, when the KV of the step's sequences is written (Engine::Step); on whichever
  // thread runs the step; must not block. May be empty.
  std::function<void(int layer)> layer_done;
};

struct CompletedStep {
  uint64_t number = 0;
  absl::Status status;                  // of the whole step: see Engine::Step
  std::vector<SequenceResult> results;  // by sequence, when OK
  double seconds = 0;
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  virtual const EngineSpec& Spec() const = 0;
  virtual std::span<const KvRegion> KvRegions() const = 0;

  // INVALID_ARGUMENT names the field: no prompt, no sampling parameters, or a token of the prompt
  // that the vocabulary lacks.
  virtual absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) = 0;

  // Never blocks. REQUIRES: no step in flight; sequences, admitted and not released.
  virtual void Launch(StepPlan plan) = 0;

  // The step that has completed, once. Never blocks.
  virtual std::optional<CompletedStep> Poll() = 0;

  // The sequence is in no further step. One in the step in flight is kept until its end. Unknown
  // handles are fine.
  virtual void Release(SequenceHandle sequence) = 0;
};

}  // namespace skein::engine
