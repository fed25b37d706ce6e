// PolledEngine: another engine whose steps run in Poll, on the thread that polls: where time stands
// still, or where one thread's time is measured.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

class PolledEngine final : public Engine {
 public:
  // `engine` outlives this, and runs nothing else.
  explicit PolledEngine(Engine* engine, StepsRun steps_run = StepsRun::kInPoll)
      : Engine(steps_run), engine_(*engine) {}

  const EngineSpec& Spec() const override { return engine_.Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_.KvRegions(); }
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override {
    return engine_.Step(sequences, progress, results);
  }
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override {
    return engine_.StepTogether(part, sequences, progress, results);
  }

 private:
  Engine& engine_;
};

}  // namespace skein::engine
