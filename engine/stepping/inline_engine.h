// InlineEngine: a StepEngine over a synchronous Engine, without a thread: Launch runs the step and
// returns when it has ended; Poll then gives the result. For simulations, and for ThreadedEngine.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/stepping/sequence_table.h"
#include "engine/stepping/step_engine.h"

namespace skein::engine {

class InlineEngine : public StepEngine {
 public:
  // `engine` outlives this.
  explicit InlineEngine(Engine* engine) : engine_(engine), sequences_(&engine->Spec()) {}

  const EngineSpec& Spec() const override { return engine_->Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_->KvRegions(); }
  absl::StatusOr<SequenceHandle> Admit(const SequenceInfo& info) override {
    return sequences_.Admit(info);
  }
  void Launch(StepPlan plan) override;
  std::optional<CompletedStep> Poll() override;
  std::optional<StepLayers> Layers() override { return std::nullopt; }  // none runs between calls
  void Release(SequenceHandle sequence) override { sequences_.Release(sequence); }

  // The two halves of Launch. Prepare is the host's part.
  std::shared_ptr<PreparedStep> Prepare(StepPlan plan) {
    return sequences_.Prepare(std::move(plan));
  }
  // Any thread, one at a time, in the order of Prepare. Uses no member of this object except the
  // engine.
  CompletedStep Run(PreparedStep* prepared) const;

 private:
  absl::Status Step(const PreparedStep& prepared, std::vector<SequenceResult>* results) const;
  absl::Status RingStep(const PreparedStep& prepared, std::vector<SequenceResult>* results) const;
  absl::Status GroupStep(const PreparedStep& prepared, std::vector<SequenceResult>* results) const;

  Engine* const engine_;
  SequenceTable sequences_;
  std::deque<CompletedStep> completed_;
};

// Whether a step that was launched while one with this status ran is not run either.
inline bool EndsTheNext(const absl::Status& status) {
  return !status.ok() && !absl::IsInvalidArgument(status);
}

}  // namespace skein::engine
