#include "services/worker/engine/engine_runner.h"

#include <optional>
#include <utility>

#include "engine/stepping/threaded_engine.h"

namespace skein::services {

EngineRunner::EngineRunner(engine::Engine* engine, LayerDone layer_done, Done done, StepLog* log,
                           RingGroups* groups)
    : layer_done_(std::move(layer_done)),
      done_(std::move(done)),
      log_(log),
      groups_(groups),
      engine_(std::make_unique<engine::ThreadedEngine>(engine, [this] { Completed(); })),
      conversion_(engine_.get()) {}

EngineRunner::~EngineRunner() = default;

void EngineRunner::Run(scheduler::RunStep step) {
  auto planned = std::make_shared<StepConversion::Planned>(conversion_.PlanOf(std::move(step)));
  if (planned->plan.sequences.empty()) {
    return done_(StepConversion::DoneOf(*planned, {.number = planned->step.step}));
  }
  in_flight_ = planned;
  engine::StepPlan plan = std::move(planned->plan);
  if (planned->step.sequences.front().ring != nullptr) plan.ring = MeetingOf(planned->step);
  if (layer_done_) {
    plan.layer_done = [this, planned](int layer) { layer_done_(planned->step, layer); };
  }
  engine_->Launch(std::move(plan));
}

engine::RingMeeting EngineRunner::MeetingOf(const scheduler::RunStep& step) const {
  const std::shared_ptr<const scheduler::RingPart> part = step.sequences.front().ring;
  RingGroups* const groups = groups_;
  return {.spans = part->piece.spans[part->rank],
          .enter = [groups, part, number = step.step]() -> absl::StatusOr<engine::RingStep> {
            if (groups != nullptr) return groups->Enter(number, *part);
            return absl::InvalidArgumentError("this worker cannot run ring steps");
          },
          .leave = [groups](const absl::Status& status) { groups->Leave(status); }};
}

// On the engine's thread.
void EngineRunner::Completed() {
  const std::optional<engine::CompletedStep> completed = engine_->Poll();
  if (!completed.has_value()) return;
  const auto planned = std::move(in_flight_);
  if (completed->status.ok() && log_ != nullptr) log_->Add(planned->step, completed->seconds);
  scheduler::StepDone done = StepConversion::DoneOf(*planned, *completed);
  const bool joint = planned->step.sequences.front().ring != nullptr && groups_ != nullptr;
  if (joint && completed->status.ok()) done.ring = groups_->path();
  done_(std::move(done));
}

}  // namespace skein::services
