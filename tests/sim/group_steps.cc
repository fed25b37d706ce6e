#include "tests/sim/group_steps.h"

#include <algorithm>

#include "tests/sim/group_talk.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

using scheduler::kMillisecondUs;
using scheduler::StepDone;

void GroupSteps::Enter(const FormationFeeds::Place& place, Entrant entrant) {
  Process* const process = entrant.process;
  watch_->PassInStep(FaultPoint::kStepLaunched, process,
                     [this, place, entrant = std::move(entrant)] { Join(place, entrant); });
}

void GroupSteps::Join(const FormationFeeds::Place& place, Entrant entrant) {
  FormationFeeds::End& end = place.context->ends[static_cast<size_t>(place.rank)];
  const Key key{place.context.get(), ++end.steps};
  MeetingPtr& found = meetings_[key];
  if (found == nullptr) {
    found = std::make_shared<Meeting>();
    found->context = place.context;
    found->number = key.second;
  }
  const MeetingPtr meeting = found;
  const int rank = place.rank;
  Process* const process = entrant.process;
  const TimeUs patience = entrant.step.deadline_us - process->LocalNow();
  meeting->entries[rank].entrant = std::move(entrant);
  process->After(std::max<TimeUs>(patience, 1), [this, meeting, rank] {
    if (meeting->entries.at(rank).over) return;
    if (network_->scenario().faultless) verdict_->Violated("a step of a group waits in vain");
    const absl::Status late = absl::DeadlineExceededError("the other ranks did not come in time");
    End(meeting, rank, late);
    BreakOne(meeting, late);
  });
  if (!place.context->failure.ok()) {
    return EndAfter(network_->random().Between(0, kMillisecondUs), meeting, rank,
                    place.context->failure);
  }
  if (meeting->entries.size() == place.context->ends.size()) Begin(meeting);
}

void GroupSteps::Begin(const MeetingPtr& meeting) {
  const Scenario& scenario = network_->scenario();
  int64_t slowness = 1;
  for (const auto& [rank, entry] : meeting->entries) {
    slowness = std::max(slowness, entry.entrant.slowness());
  }
  const TimeUs base = scenario.step_us * slowness;
  const TimeUs takes = network_->random().Between(base / 2, base + base / 2);
  VirtualTime& time = network_->time();
  if (network_->Happens(scenario.group_break_chance)) {
    time.At(time.now() + takes / 2, [this, meeting] {
      BreakOne(meeting, absl::UnavailableError("a connection between the ranks broke"));
    });
  }
  if (!scenario.compute_at_end) Compute(*meeting);
  for (const auto& [rank, entry] : meeting->entries) {
    entry.entrant.process->After(takes / 2, [this, process = entry.entrant.process] {
      watch_->PassInStep(FaultPoint::kInStep, process, [] {});
    });
  }
  time.At(time.now() + takes, [this, meeting] { Finish(meeting); });
}

void GroupSteps::Finish(const MeetingPtr& meeting) {
  if (meeting->broken) return;
  for (const auto& [rank, entry] : meeting->entries) {  // the others wait for it in a collective
    if (!entry.entrant.process->stands_still()) continue;
    return entry.entrant.process->WhenAwake([this, meeting] { Finish(meeting); });
  }
  if (network_->scenario().compute_at_end) Compute(*meeting);
  ++run_;
  run_in_sp_ += meeting->entries.begin()->second.entrant.step.group->sp > 1 ? 1 : 0;
  const bool fails = std::any_of(meeting->entries.begin(), meeting->entries.end(),
                                 [](const auto& entry) { return entry.second.entrant.fails(); });
  for (const auto& [rank, entry] : meeting->entries) {
    const TimeUs lag = network_->random().Between(0, kStepLagUs);
    const bool cut_off = fails && !entry.entrant.fails();
    EndAfter(lag, meeting, rank,
             cut_off ? absl::UnavailableError("another rank has failed") : absl::OkStatus());
  }
}

void GroupSteps::Compute(Meeting& meeting) {
  GroupTalk talk(static_cast<int>(meeting.entries.size()), [&](int rank) {
    Entry& entry = meeting.entries.at(rank);
    const scheduler::StepMode mode = *entry.entrant.step.group;
    engine::GroupPart part{.mode = {mode.sp, mode.tp}, .deadline = engine::CommDeadline::max()};
    part.all = talk.Of(rank);
    entry.computed = entry.entrant.compute(part);
  });
  talk.RunAll();
  // The members do not know the names of requests, by which the simulation says that logits are
  // NaN; in a real group all ranks see them.
  const StepDone& lead = *meeting.entries.at(0).computed;
  for (auto& [rank, entry] : meeting.entries) {
    if (entry.computed->results.size() != lead.results.size()) continue;
    for (size_t i = 0; i < lead.results.size(); ++i) {
      if (!lead.results[i].status.ok()) entry.computed->results[i].status = lead.results[i].status;
    }
  }
}

void GroupSteps::Break(const FormationFeeds::ContextPtr& context) {
  std::vector<MeetingPtr> theirs;
  for (const auto& [key, meeting] : meetings_) {
    if (key.first == context.get()) theirs.push_back(meeting);
  }
  for (const MeetingPtr& meeting : theirs) BreakOne(meeting, context->failure);
}

void GroupSteps::BreakOne(const MeetingPtr& meeting, const absl::Status& why) {
  if (meeting->context->failure.ok()) meeting->context->failure = why;
  if (std::exchange(meeting->broken, true)) return;
  ++broken_;
  for (const auto& [rank, entry] : meeting->entries) {
    if (entry.over) continue;
    EndAfter(network_->random().Between(0, kBreakToldUs), meeting, rank,
             absl::UnavailableError(why.message()));
  }
  meetings_.erase({meeting->context.get(), meeting->number});
}

void GroupSteps::EndAfter(TimeUs delay, const MeetingPtr& meeting, int rank, absl::Status status) {
  meeting->entries.at(rank).entrant.process->After(
      delay, [this, meeting, rank, status = std::move(status)] { End(meeting, rank, status); });
}

void GroupSteps::End(const MeetingPtr& meeting, int rank, const absl::Status& status) {
  Entry& entry = meeting->entries.at(rank);
  if (std::exchange(entry.over, true)) return;
  if (!entry.computed.has_value()) {
    entry.computed = entry.entrant.compute(
        status.ok() ? absl::InternalError("a step ended that did not run") : status);
  } else if (!status.ok()) {
    entry.computed = StepDone{entry.entrant.step.step, status, {}};
  }
  const bool all_over = meeting->entries.size() == meeting->context->ends.size() &&
                        std::all_of(meeting->entries.begin(), meeting->entries.end(),
                                    [](const auto& one) { return one.second.over; });
  if (all_over) meetings_.erase({meeting->context.get(), meeting->number});
  const auto done = [done = entry.entrant.done, computed = *std::move(entry.computed)] {
    done(computed);
  };
  if (!status.ok()) return done();
  watch_->PassInStep(FaultPoint::kStepEnded, entry.entrant.process, done);
}

}  // namespace skein::sim
