// A step of a core as a plan of the engine, and the engine's results in the core's words.
// EngineRunner and tests/sim use it: what is simulated is what ships.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

// The sequences of a core, admitted at an engine, and its steps as the engine's plans. One thread
// calls all but DoneOf, which touches nothing of this.
class StepConversion {
 public:
  // A step of the core, as it is launched.
  struct Planned {
    scheduler::RunStep step;
    engine::StepPlan plan;  // without ring and callbacks, which the caller adds
    // By step.sequences. Not OK: the engine has not admitted it, and it is not in the plan.
    std::vector<absl::Status> admitted;
  };

  // `engine` outlives this.
  explicit StepConversion(engine::StepEngine* engine) : engine_(engine) {}
  ~StepConversion();  // releases all sequences
  StepConversion(const StepConversion&) = delete;
  StepConversion& operator=(const StepConversion&) = delete;

  // Admits those of its sequences that are not known yet. Reads their output here and now, so it
  // may grow afterwards. A probe takes the likeliest token: it is of no request, so of no client's
  // parameters.
  Planned PlanOf(scheduler::RunStep step);
  // The sequence is in no further step. Unknown ones are fine.
  void Release(const scheduler::ReleaseSequence& effect);

  static scheduler::StepDone DoneOf(const Planned& planned, const engine::CompletedStep& completed);

 private:
  using Key = std::pair<scheduler::RequestId, scheduler::Epoch>;

  // A sequence that the engine knows.
  struct Known {
    engine::SequenceHandle handle;
    scheduler::BlockTable table = nullptr;  // of its last step; null before the first
    int64_t output = 0;  // tokens that the engine has of it when its last step has ended
  };

  absl::StatusOr<Known*> KnownOf(const scheduler::StepSequence& sequence, bool probe);
  static void PlanBlocks(const scheduler::StepSequence& sequence, Known* known,
                         engine::PlannedSequence* planned);
  static void PlanOutput(const scheduler::StepSequence& sequence, Known* known,
                         engine::PlannedSequence* planned);

  engine::StepEngine* const engine_;
  std::map<Key, Known> known_;
  std::optional<Known> probe_;  // the latest
};

// `result` is of a step whose status was OK.
scheduler::StepResult ResultOf(const scheduler::StepSequence& sequence,
                               const engine::SequenceResult& result);

// Without its communicators, which RingGroups adds.
engine::RingStep RingStepOf(const scheduler::RingPart& part);

}  // namespace skein::services
