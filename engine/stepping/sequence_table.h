// SequenceTable: the sequences that an engine has admitted, with their block tables and output, and
// from a plan the input of its step. What was checked once is not checked again
// (SequenceStep::Checked), and nothing that grows with a sequence's length is copied or read: a
// plan costs the tokens that it runs, and the blocks and output tokens that are new. Penalties cost
// the ids that they fall on, which are kept with the sequence.
//
// A step is made in two halves. Prepare is the host's part, and may run while the step before runs.
// Begin adds what only that step's end tells: the tokens that it sampled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/sampling/seen_ids.h"
#include "engine/step.h"
#include "engine/step_progress.h"
#include "engine/stepping/step_engine.h"

namespace skein::engine {

// A sequence's output as the engine has it: what plans said, and what steps sampled. Only the
// thread that runs steps uses it.
struct SequenceOutput {
  // Brings it to what the plan says. False: it lacks tokens that the plan keeps.
  bool Change(const PlannedSequence& planned, const SequenceInfo& info, int vocab_size);

  std::vector<int32_t> tokens;
  size_t checked = 0;   // the first so many are in the vocabulary
  uint64_t digest = 0;  // of those (SequenceStep::Checked)
  SeenIds seen;         // likewise, and of the prompt
};

// A plan that can run. It keeps all that `steps` point to, also of sequences that are released
// meanwhile.
struct PreparedStep {
  // The arrays of one sequence.
  struct Arrays {
    SequenceInfo info;
    std::shared_ptr<const std::vector<int32_t>> table;
    std::shared_ptr<SequenceOutput> output;
    std::vector<int32_t> tokens;
    std::vector<int32_t> next_tokens;
  };

  PreparedStep() = default;
  PreparedStep(const PreparedStep&) = delete;
  PreparedStep& operator=(const PreparedStep&) = delete;

  // These two on the thread that runs steps, when the step before has ended, and when this one has.
  // A sequence whose output is shorter than its plan says gets no tokens, so its check refuses it.
  void Begin(int vocab_size);
  void End(const std::vector<SequenceResult>& results);  // of a step that is OK

  StepPlan plan;
  std::shared_ptr<StepProgress> progress;
  std::vector<Arrays> arrays;       // by plan.sequences
  std::vector<SequenceStep> steps;  // likewise; without ring; whole after Begin
};

// Used by one thread.
class SequenceTable {
 public:
  explicit SequenceTable(const EngineSpec* spec) : spec_(*spec) {}  // outlives this

  absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info);  // as StepEngine::Admit
  void Release(SequenceHandle sequence) { sequences_.erase(sequence.value); }

  // Changes the tables as the plan says. What a step in flight reads of a table stays as it was.
  // REQUIRES: each sequence of the plan is admitted, and `kept_blocks` are there.
  std::shared_ptr<PreparedStep> Prepare(StepPlan plan);

 private:
  struct Sequence {
    SequenceInfo info;
    std::shared_ptr<std::vector<int32_t>> table;
    std::shared_ptr<SequenceOutput> output;
    SequenceStep::Checked checked;
  };

  void ChangeTable(const PlannedSequence& planned, Sequence* sequence) const;

  const EngineSpec& spec_;
  std::unordered_map<uint64_t, Sequence> sequences_;  // by handle
  uint64_t last_ = 0;
};

}  // namespace skein::engine
