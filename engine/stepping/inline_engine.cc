#include "engine/stepping/inline_engine.h"

#include <chrono>
#include <vector>

namespace skein::engine {

CompletedStep InlineEngine::Run(const PreparedStep& prepared) const {
  CompletedStep completed{.number = prepared.plan.number, .status = {}, .results = {}};
  const auto started = std::chrono::steady_clock::now();
  completed.status = Step(prepared, &completed.results);
  completed.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return completed;
}

absl::Status InlineEngine::Step(const PreparedStep& prepared,
                                std::vector<SequenceResult>* results) const {
  const StepPlan& plan = prepared.plan;
  if (plan.ring.has_value() && plan.group.has_value()) {
    return absl::InvalidArgumentError("ring, group: a step is one of them, or neither");
  }
  if (plan.ring.has_value()) return RingStep(prepared, results);
  if (plan.group.has_value()) return GroupStep(prepared, results);
  return engine_->Step(prepared.steps, plan.layer_done, results);
}

absl::Status InlineEngine::RingStep(const PreparedStep& prepared,
                                    std::vector<SequenceResult>* results) const {
  const RingMeeting& meeting = *prepared.plan.ring;
  if (prepared.steps.size() != 1) {
    return absl::InvalidArgumentError("ring: a ring step must have exactly one sequence");
  }
  const absl::StatusOr<engine::RingStep> ring = meeting.enter();
  if (!ring.ok()) return ring.status();
  SequenceStep step = prepared.steps.front();
  step.ring = &*ring;
  absl::Status status = engine_->Step({&step, 1}, prepared.plan.layer_done, results);
  meeting.leave(status);
  return status;
}

absl::Status InlineEngine::GroupStep(const PreparedStep& prepared,
                                     std::vector<SequenceResult>* results) const {
  const GroupMeeting& meeting = *prepared.plan.group;
  const absl::StatusOr<GroupPart> part = meeting.enter();
  if (!part.ok()) return part.status();
  absl::Status status =
      engine_->StepTogether(*part, prepared.steps, prepared.plan.layer_done, results);
  meeting.leave(status);
  return status;
}

}  // namespace skein::engine
