#include "tests/sim/formation_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/base/own_end_first.h"
#include "tests/sim/formation_feeds.h"
#include "tests/sim/formation_limits.h"
#include "tests/sim/group_steps.h"

namespace skein::sim {

using scheduler::FormationTold;

void FormationWatch::Told(const Process* worker, const FormationTold& told) {
  const auto parts = parts_.find(worker);
  if (parts == parts_.end()) return;
  const auto part = parts->second.find(told.epoch);
  if (part == parts->second.end()) return;
  part->second.bound = told.phase == FormationTold::Phase::kBound;
  if (told.phase != FormationTold::Phase::kEnded) return;
  parts->second.erase(part);
  if (struck_.has_value() && struck_->part.epoch == told.epoch && worker != victim_) {
    struck_->alone_us = network_->time().now() - struck_->at_us;
  }
}

std::optional<FormationWatch::Part> FormationWatch::PartOf(const Process* worker,
                                                           uint64_t epoch) const {
  const auto parts = parts_.find(worker);
  if (parts == parts_.end()) return std::nullopt;
  const auto part = parts->second.find(epoch);
  return part == parts->second.end() ? std::nullopt : std::optional<Part>(part->second);
}

std::optional<FormationWatch::Part> FormationWatch::BoundPartOf(const Process* worker) const {
  const auto parts = parts_.find(worker);
  if (parts == parts_.end()) return std::nullopt;
  for (const auto& [epoch, part] : parts->second) {
    if (part.bound) return part;
  }
  return std::nullopt;
}

void FormationWatch::Pass(FaultPoint point, Process* worker, const Part& part,
                          const std::function<void()>& go_on) {
  if (!Strikes(point, worker, part)) return go_on();
  Strike(point, worker, part, go_on);
}

void FormationWatch::PassInStep(FaultPoint point, Process* worker,
                                const std::function<void()>& go_on) {
  const std::optional<Part> part = BoundPartOf(worker);
  part.has_value() ? Pass(point, worker, *part, go_on) : go_on();
}

bool FormationWatch::Strikes(FaultPoint point, const Process* worker, const Part& part) {
  const std::optional<PointedFault>& fault = network_->scenario().pointed;
  if (!fault.has_value() || struck_.has_value() || network_->healed()) return false;
  if (fault->point != point || fault->lead != (part.rank == 0)) return false;
  if (fault->amid_handoffs && HandoffsTo(worker, part.epoch) == 0) return false;
  return passed_++ >= fault->passes;
}

int64_t FormationWatch::HandoffsTo(const Process* worker, uint64_t epoch) const {
  int64_t handoffs = 0;
  for (const auto& [member, parts] : parts_) {
    const bool holds = member == worker || parts.contains(epoch);
    if (holds) handoffs += handoffs_(member->endpoint());
  }
  return handoffs;
}

// The longest that any other member waits, by the limits of the configuration. Beside them there
// are a message of the network and a step in flight, which nobody can end.
TimeUs FormationWatch::Within(FaultPoint point, const PointedFault& fault, const Part& part) const {
  const Scenario& scenario = network_->scenario();
  const FormationTimes times = FormationTimesOf(scenario);
  const TimeUs besides_us = scenario.delay_max_us + LongestStepUs(scenario);
  if (fault.kills) {  // the others see its links break, and their steps end
    return kDeathToldUs + kBreakToldUs + besides_us;
  }
  if (point < FaultPoint::kCommitOrdered) {  // the orchestrator gives the bind up
    const bool own_first = OwnEndFirst(part.own, /*leads=*/false);
    return times.orders.prepare_us + (own_first ? times.orders.release_us : 0) + besides_us;
  }
  if (point == FaultPoint::kCommitOrdered) return times.orders.commit_us + besides_us;
  // A rank waits for an answer or a step of another one, or a member for a plan of the lead, or the
  // orchestrator gives the victim up: routers stop hearing it within a lease, and tell it within
  // another one.
  return std::max(
             {times.step_max_us, times.feed.step_us + times.feed.answer_us, 2 * times.lease_us}) +
         besides_us;
}

void FormationWatch::Strike(FaultPoint point, Process* worker, const Part& part,
                            const std::function<void()>& go_on) {
  const PointedFault& fault = *network_->scenario().pointed;
  VirtualTime& time = network_->time();
  const TimeUs now = time.now();
  network_->trace().Note(now, worker->endpoint(), services::testing::NameOf(point), part.epoch);
  victim_ = worker;
  struck_ = Struck{.part = part, .at_us = now, .within_us = Within(point, fault, part)};
  struck_->handoffs = HandoffsTo(worker, part.epoch);
  time.At(now + struck_->within_us, [this, worker] { CheckOthers(worker); });
  const uint64_t mine = worker->generation();
  if (fault.kills) {  // when what runs in it has returned
    time.At(now, [worker, mine] {
      if (worker->generation() == mine) worker->Crash();
    });
    time.At(now + fault.lasts_us, [worker] {
      if (!worker->alive()) worker->Start();
    });
    return;
  }
  const TimeUs wakes_us = now + struck_->within_us + fault.lasts_us;
  worker->StandStill(wakes_us);
  worker->WhenAwake(go_on);
  // It has been given up meanwhile, and finds that out, or forgets what it has prepared.
  const scheduler::orchestrator::FormationLimits orders =
      FormationTimesOf(network_->scenario()).orders;
  const TimeUs keeps_us = orders.prepare_us + orders.commit_us +
                          (OwnEndFirst(part.own, part.rank == 0) ? orders.release_us : 0);
  time.At(wakes_us + struck_->within_us + keeps_us, [this, worker, mine, epoch = part.epoch] {
    const bool holds = worker->generation() == mine && PartOf(worker, epoch).has_value();
    verdict_->Require(!holds, absl::StrCat(worker->endpoint(),
                                           " runs again, and holds a formation that is over"));
  });
}

void FormationWatch::CheckOthers(const Process* victim) const {
  for (const auto& [worker, parts] : parts_) {
    if (worker == victim || !parts.contains(struck_->part.epoch)) continue;
    verdict_->Violated(absl::StrCat(
        worker->endpoint(), " holds formation ", struck_->part.epoch, " of ", victim->endpoint(),
        " for ", struck_->within_us, " us after that was struck at ",
        services::testing::NameOf(network_->scenario().pointed->point)));
  }
}

}  // namespace skein::sim
