// InlineEngine: a StepEngine over a synchronous Engine, without a thread: Launch runs the step and
// returns when it has ended; Poll then gives the result. For simulations, and for ThreadedEngine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/stepping/step_engine.h"

namespace skein::engine {

class InlineEngine : public StepEngine {
 public:
  explicit InlineEngine(Engine* engine) : engine_(engine) {}  // `engine` outlives this

  const EngineSpec& Spec() const override { return engine_->Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_->KvRegions(); }
  absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) override;
  void Launch(StepPlan plan) override { completed_ = Run(Take(std::move(plan))); }
  std::optional<CompletedStep> Poll() override { return std::exchange(completed_, std::nullopt); }
  void Release(SequenceHandle sequence) override { sequences_.erase(sequence); }

  // A plan with copies of its sequences' infos, since these may be released while it runs.
  struct Taken {
    StepPlan plan;
    std::vector<SequenceInfo> sequences;  // by plan.sequences
  };
  Taken Take(StepPlan plan) const;
  // Runs the plan; any thread, one at a time. Uses no member of this object except the engine.
  CompletedStep Run(const Taken& taken) const;

 private:
  // The arrays that an Engine's SequenceStep points to.
  struct Buffers {
    std::vector<int32_t> tokens;
    std::vector<int32_t> next_tokens;
  };

  static Buffers BuffersOf(const SequenceInfo& info, const PlannedSequence& planned,
                           const std::optional<RingMeeting>& ring);
  static SequenceStep StepOf(const SequenceInfo& info, const PlannedSequence& planned,
                             const Buffers& buffers);
  absl::Status Step(const StepPlan& plan, std::vector<SequenceStep> steps,
                    std::vector<SequenceResult>* results) const;

  Engine* const engine_;
  std::map<SequenceHandle, SequenceInfo> sequences_;
  uint64_t last_ = 0;
  std::optional<CompletedStep> completed_;
};

}  // namespace skein::engine
