// FaultyEngine: another engine that fails or hangs on request, for tests and drills: in every step
// with a sequence whose prompt contains a certain token. Or one sequence gets logits of NaN.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

struct Faults {
  int64_t fail_token = -1;  // the step ends with INTERNAL; -1: none does
  int64_t hang_token = -1;  // the step never ends
  int64_t nan_token = -1;   // that sequence ends with INTERNAL, as one whose logits are NaN

  bool any() const { return fail_token >= 0 || hang_token >= 0 || nan_token >= 0; }
};

class FaultyEngine : public Engine {
 public:
  FaultyEngine(std::unique_ptr<Engine> engine, const Faults& faults)
      : engine_(std::move(engine)), faults_(faults) {}

  const EngineSpec& Spec() const override { return engine_->Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_->KvRegions(); }
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override;
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override;

 private:
  // Hangs, or gives the error of a step that fails.
  absl::Status Before(std::span<const SequenceStep> sequences) const;
  void SpoilNan(std::span<const SequenceStep> sequences,
                std::vector<SequenceResult>* results) const;

  std::unique_ptr<Engine> engine_;
  const Faults faults_;
};

}  // namespace skein::engine
