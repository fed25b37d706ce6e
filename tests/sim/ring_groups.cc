#include "tests/sim/ring_groups.h"

#include <utility>
#include <variant>

#include "tests/sim/virtual_time.h"

namespace skein::sim {

using scheduler::StepDone;

void RingGroups::Run(JointSteps::Entrant entrant) {
  entrant.thread->busy = true;
  process_->After(Moment(),
                  [this, entrant = std::move(entrant)]() mutable { Enter(std::move(entrant)); });
}

void RingGroups::Enter(JointSteps::Entrant entrant) {
  const uint64_t step = entrant.step.step;
  const auto tell = [this, thread = entrant.thread, done = std::move(entrant.done)](StepDone end) {
    process_->After(Moment(), [thread, done, end = std::move(end)]() mutable {
      thread->busy = false;
      done(std::move(end));
    });
  };
  Take(steps_.Enter(step, *entrant.step.sequences.front().ring));
  if (!steps_.entry().ok()) return tell({step, steps_.entry(), {}});
  entrant.done = [this, tell](StepDone end) {
    Take(steps_.Leave(end.status));
    tell(std::move(end));
  };
  joint_steps_->Enter(std::move(entrant));
}

void RingGroups::Abort(uint64_t step) {
  Take(steps_.Abort(step, absl::CancelledError("the request was cancelled")));
}

void RingGroups::Break(const scheduler::BreakGroup& group) {
  Take(steps_.Break(group, absl::UnavailableError("a member has given the plan up")));
}

void RingGroups::Stop() { Take(steps_.Stop()); }

void RingGroups::Take(const scheduler::RingSteps::Effects& effects) {
  for (const scheduler::RingEffect& effect : effects) {
    std::visit(
        [this]<class T>(const T& one) {
          network_->trace().Note(network_->time().now(), process_->endpoint(), TypeName<T>(), 0);
          Execute(one);
        },
        effect);
  }
  const absl::Status invariants = steps_.CheckInvariants();
  if (!invariants.ok()) verdict_->Violated(std::string(invariants.message()));
}

void RingGroups::Execute(const scheduler::OpenRing& effect) {
  const bool fails = network_->Happens(network_->scenario().group_break_chance);
  if (!fails) joint_steps_->Make(process_, effect);
  Take(steps_.Opened(fails ? absl::UnavailableError("a member cannot be reached")
                           : absl::OkStatus()));
}
void RingGroups::Execute(const scheduler::CloseRing& effect) {
  joint_steps_->Drop(process_, effect.group);
}
void RingGroups::Execute(const scheduler::AbortRing& effect) {
  joint_steps_->Abort(process_, effect);
}
void RingGroups::Execute(const scheduler::RefuseRing& effect) {
  joint_steps_->Refuse(effect.refused);
}

}  // namespace skein::sim
