// StepEngine: runs step plans on one device. A sequence is admitted once and then named by its
// handle; a launched step completes later. It is all that is seen of an engine outside engine/.
// Implementations: the engines of engine.h. The conformance suite is step_engine_test.cc.
//
// Threads: Spec, KvRegions, Poll and Layers may be called by any thread; the first two never
// change. One thread calls the rest.
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
#include "engine/parallel/group_part.h"
#include "engine/sampling/sampling_params.h"
#include "engine/step.h"

namespace skein::engine {

struct SequenceHandle {
  uint64_t value = 0;
  auto operator<=>(const SequenceHandle&) const = default;
};

// The properties of a sequence that all its steps share.
struct SequenceInfo {
  std::shared_ptr<const std::vector<int32_t>> prompt;
  std::shared_ptr<const SamplingParams> sampling;
  // Each step's result has the logprobs of the prompt tokens that follow those that it ran.
  bool prompt_logprobs = false;
  KvLayout layout = {};  // of its KV: tp = P for steps of a group of P ranks
};

// One sequence's part in a step: tokens [position, position + count) of prompt ++ output.
struct PlannedSequence {
  SequenceHandle sequence;
  int64_t position = 0;
  int64_t count = 0;
  // Its block table, as a change of the one that its last step had: the first `kept_blocks` entries
  // of that, then these. It covers position + count tokens; ring: it is the spans' blocks.
  int64_t kept_blocks = 0;
  std::vector<BlockId> blocks;
  // Its output so far, likewise: of the output as the engine has it when the step begins, the first
  // `kept_output` tokens, then these. The engine has what plans said and what its own steps have
  // sampled. So a step that is launched while another one runs may run that one's token: it keeps
  // it, before anybody knows it.
  int64_t kept_output = 0;
  std::vector<int32_t> output;
  bool sample = false;       // choose the token after the last one
  uint64_t token_index = 0;  // that token's index in the output
};

// The other instances of a ring step.
struct RingMeeting {
  std::vector<TokenSpan> spans;  // of this rank
  // Called when the step begins, on the thread that runs it. Returns the step with its
  // communicators, valid until `leave`. Not OK: the step ends with this status, without having run.
  std::function<absl::StatusOr<RingStep>()> enter;
  // Called on the same thread when a step that was entered has ended, with its status.
  std::function<void(const absl::Status&)> leave;
};

// The other ranks of a step in which a group is bound, and its mode. As in RingMeeting.
struct GroupMeeting {
  std::function<absl::StatusOr<GroupPart>()> enter;
  std::function<void(const absl::Status&)> leave;
};

// A step of this instance alone, unless `ring` or `group` is set (not both).
struct StepPlan {
  uint64_t number = 0;  // the caller's
  std::vector<PlannedSequence> sequences;
  std::optional<RingMeeting> ring;    // a ring step, of one sequence of layout tp = 1
  std::optional<GroupMeeting> group;  // a bound group's step, of sequences of its layout
  // Called on the thread that runs the step when Layers counts one more as queued: as
  // StepProgress's `queued`. Empty: nobody asks for layers.
  std::function<void(int layer)> layer_queued;
  // Called when Poll has the step's end, once, on the thread that runs steps. It may call Poll and
  // Launch; the next step waits for it. `idle`: no step was launched behind this one. May be empty.
  // Another thread may Poll the end before this is called, and while it runs: what it uses has to
  // live until it has returned.
  std::function<void(bool idle)> completed;
};

// How far a step is: of how many layers the work was given to the device, and of how many of these
// the KV of the step's sequences is written. Both only grow.
struct StepLayers {
  uint64_t number = 0;  // the step's
  int queued = 0;
  int written = 0;
};

struct CompletedStep {
  uint64_t number = 0;
  absl::Status status;                  // of the whole step (below)
  std::vector<SequenceResult> results;  // by sequence, when OK
  int layers = 0;                       // written, if it had layer_queued
  double seconds = 0;
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  virtual const EngineSpec& Spec() const = 0;
  virtual std::span<const KvRegion> KvRegions() const = 0;

  // Checks what no step of the sequence checks again. INVALID_ARGUMENT names the field: no prompt,
  // no sampling parameters or impossible ones, or a token of the prompt that the vocabulary lacks.
  virtual absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) = 0;

  // Starts the step; does not block. A step that is launched while another one is in flight begins
  // when that has ended. If that one fails, with
  // anything but INVALID_ARGUMENT, this one is not run and ends likewise. A sequence for which it
  // was to sample a token that this one runs, and did not, is refused in this one. REQUIRES: at
  // most one step is in flight; each sequence of the plan is admitted and not released.
  virtual void Launch(StepPlan plan) = 0;

  // The step that has completed, once, in the order of Launch. Never blocks, unless the engine
  // runs its steps in Poll (StepsRun::kInPoll).
  virtual std::optional<CompletedStep> Poll() = 0;

  // Of the step that runs, if it has layer_queued; nullopt: none does. Never blocks, nor does any
  // step wait for it.
  virtual std::optional<StepLayers> Layers() = 0;

  // No later step has the sequence. If steps in flight have it, it is kept until they end. Unknown
  // handles are ignored.
  virtual void Release(SequenceHandle sequence) = 0;
};

}  // namespace skein::engine
