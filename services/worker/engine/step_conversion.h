// A step of a core in the engine's words, and the engine's results in the core's. EngineRunner and
// tests/sim use it: what is simulated is what ships.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "scheduler/base/request.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

// The sequences of a step, and all that they point into but the request's spec and output: it must
// not outlive the step. Not copied, since they point into it.
class StepInputs {
 public:
  using SamplingOf =
      std::function<std::shared_ptr<const engine::SamplingParams>(const scheduler::RequestSpec&)>;

  // A probe takes the likeliest token: of no request, so of no client's parameters; `sampling_of`
  // is not asked then.
  StepInputs(const scheduler::RunStep& step, const SamplingOf& sampling_of);
  StepInputs(const StepInputs&) = delete;
  StepInputs& operator=(const StepInputs&) = delete;

  const std::vector<engine::SequenceStep>& sequences() const { return sequences_; }

 private:
  struct Buffers {
    std::vector<int32_t> tokens;
    std::vector<int32_t> next_tokens;
    std::vector<int32_t> blocks;
    std::shared_ptr<const engine::SamplingParams> sampling;
  };

  static Buffers BuffersOf(const scheduler::StepSequence& sequence);
  static engine::SequenceStep StepOf(const scheduler::StepSequence& sequence,
                                     const Buffers& buffers);

  std::vector<Buffers> buffers_;
  std::vector<engine::SequenceStep> sequences_;
};

// `result` is of a step whose status was OK.
scheduler::StepResult ResultOf(const scheduler::StepSequence& sequence,
                               const engine::SequenceResult& result);

// Without its communicators, which RingGroups adds.
engine::RingStep RingStepOf(const scheduler::RingPart& part);

}  // namespace skein::services
