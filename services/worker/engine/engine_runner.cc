#include "services/worker/engine/engine_runner.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {

EngineRunner::EngineRunner(engine::StepEngine* engine, Told told, Records records,
                           RingGroups* groups)
    : told_(std::move(told)),
      records_(records),
      groups_(groups),
      engine_(engine),
      conversion_(engine) {}

EngineRunner::~EngineRunner() {
  std::unique_lock lock(running_mu_);
  idle_.wait(lock, [this] { return running_ == 0; });
  // What nobody took: the engine's next owner shall not find it.
  while (engine_->Poll().has_value()) {
  }
}

void EngineRunner::StepCompleted(bool idle) {
  told_.ended(idle);
  // The last use of this object, which may have polled the end (StepPlan::completed): under the
  // lock, for which its end waits.
  const std::lock_guard lock(running_mu_);
  --running_;
  idle_.notify_all();
}

void EngineRunner::Run(scheduler::RunStep step) {
  auto planned = std::make_shared<StepConversion::Planned>(conversion_.PlanOf(std::move(step)));
  engine::StepPlan plan = std::move(planned->plan);
  {
    const std::lock_guard lock(mu_);
    in_flight_.push_back({planned, plan.sequences.empty()});
  }
  if (plan.sequences.empty()) return told_.ended(/*idle=*/false);
  if (planned->step.sequences.front().ring != nullptr) plan.ring = MeetingOf(planned->step);
  if (planned->step.group.has_value()) plan.group = GroupMeetingOf(planned->step);
  if (told_.layer_written) {
    plan.layer_queued = [this](int layer) { told_.layer_queued(layer); };
  }
  plan.completed = [this](bool idle) { StepCompleted(idle); };
  {
    const std::lock_guard lock(running_mu_);
    ++running_;
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

engine::GroupMeeting EngineRunner::GroupMeetingOf(const scheduler::RunStep& step) const {
  const engine::GroupMode mode = {step.group->sp, step.group->tp};
  const engine::CommDeadline until{std::chrono::microseconds(step.deadline_us)};
  return {.enter = [context = group_, mode, until]() -> absl::StatusOr<engine::GroupPart> {
            if (context != nullptr && mode.ranks() == context->size()) {
              return context->Part(mode, until);
            }
            return absl::InvalidArgumentError(absl::StrCat(
                "mode: sp = ", mode.sp, ", tp = ", mode.tp, " does not fit this worker's group"));
          },
          .leave = [](const absl::Status&) {}};
}

bool EngineRunner::TellLayers() {
  if (!told_.layer_written) return false;
  const std::optional<engine::StepLayers> layers = engine_->Layers();
  if (!layers.has_value()) return false;
  const std::lock_guard lock(mu_);
  for (Handed& step : in_flight_) {
    if (step.planned->step.step == layers->number) TellLayers(layers->written, &step);
  }
  return layers->queued > layers->written;
}

void EngineRunner::TellLayers(int written, Handed* step) const {
  while (step->layers_told < written) told_.layer_written(step->planned->step, step->layers_told++);
}

std::vector<scheduler::StepDone> EngineRunner::TakeDone() {
  std::vector<scheduler::StepDone> done;
  const std::lock_guard lock(mu_);
  while (!in_flight_.empty()) {
    Handed& first = in_flight_.front();
    const engine::CompletedStep none{.number = first.planned->step.step};
    const std::optional<engine::CompletedStep> completed = first.empty ? none : engine_->Poll();
    if (!completed.has_value()) break;
    TellLayers(completed->layers, &first);
    if (completed->status.ok() && !first.empty) Record(*first.planned, *completed);
    done.push_back(DoneOf(*first.planned, *completed));
    in_flight_.pop_front();
  }
  return done;
}

void EngineRunner::Record(const StepConversion::Planned& planned,
                          const engine::CompletedStep& completed) const {
  if (records_.counts != nullptr) records_.counts->Add(planned.step);
  if (records_.log != nullptr) records_.log->Add(planned.step, completed.seconds);
}

scheduler::StepDone EngineRunner::DoneOf(const StepConversion::Planned& planned,
                                         const engine::CompletedStep& completed) const {
  scheduler::StepDone done = StepConversion::DoneOf(planned, completed);
  const bool joint = planned.step.sequences.front().ring != nullptr && groups_ != nullptr;
  if (joint && completed.status.ok()) done.ring = groups_->path();
  return done;
}

}  // namespace skein::services
