#include "engine/stepping/inline_engine.h"

#include <chrono>
#include <vector>

namespace skein::engine {

void InlineEngine::Launch(StepPlan plan) {
  const std::shared_ptr<PreparedStep> prepared = Prepare(std::move(plan));
  if (!completed_.empty() && EndsTheNext(completed_.back().status)) {
    completed_.push_back({.number = prepared->plan.number, .status = completed_.back().status});
  } else {
    completed_.push_back(Run(prepared.get()));
  }
}

std::optional<CompletedStep> InlineEngine::Poll() {
  if (completed_.empty()) return std::nullopt;
  CompletedStep first = std::move(completed_.front());
  completed_.pop_front();
  return first;
}

CompletedStep InlineEngine::Run(PreparedStep* prepared) const {
  CompletedStep completed{.number = prepared->plan.number, .status = {}, .results = {}};
  const auto started = std::chrono::steady_clock::now();
  prepared->Begin(engine_->Spec().vocab_size);
  completed.status = Step(*prepared, &completed.results);
  if (completed.status.ok()) prepared->End(completed.results);
  completed.layers = prepared->progress->LayersWritten();
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
  return engine_->Step(prepared.steps, prepared.progress.get(), results);
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
  absl::Status status = engine_->Step({&step, 1}, prepared.progress.get(), results);
  meeting.leave(status);
  return status;
}

absl::Status InlineEngine::GroupStep(const PreparedStep& prepared,
                                     std::vector<SequenceResult>* results) const {
  const GroupMeeting& meeting = *prepared.plan.group;
  const absl::StatusOr<GroupPart> part = meeting.enter();
  if (!part.ok()) return part.status();
  absl::Status status =
      engine_->StepTogether(*part, prepared.steps, prepared.progress.get(), results);
  meeting.leave(status);
  return status;
}

}  // namespace skein::engine
