#include "services/orchestrator/formation_metrics.h"

#include <map>

#include "scheduler/base/own_end_first.h"

namespace skein::services {
namespace {

using scheduler::OwnSequences;
using scheduler::SharedMode;
using scheduler::orchestrator::SwitchEnded;
using scheduler::orchestrator::SwitchOutcome;

constexpr double kSecond = 1e-6;

// From a tenth of a millisecond, which a cut-over takes between idle instances, to some steps.
const std::vector<double>& CutOverBuckets() {
  static const auto* buckets = new std::vector<double>{
      0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1, 5};
  return *buckets;
}

// Up to the longest that a release waits for bound sequences (FormationLimits), and its order; a
// bind waits as long for own ones.
const std::vector<double>& DrainBuckets() {
  static const auto* buckets =
      new std::vector<double>{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 70};
  return *buckets;
}

// Of a bind the formation was, or was to be, larger than before.
bool IsBind(const SwitchEnded& ended) { return ended.to > ended.from; }

const char* KindOf(bool bind) { return bind ? "bind" : "release"; }

}  // namespace

FormationMetrics::FormationMetrics(Metrics* metrics)
    : metrics_(metrics),
      unanswered_(
          metrics->Counter("skein_formation_unanswered_total",
                           "Instances that did not answer the order to end a formation in time.")),
      bind_drain_(Drain(true)),
      release_drain_(Drain(false)),
      cut_over_(metrics->Histogram(
          "skein_formation_cut_over_seconds",
          "Of binds: from the commit until every instance could run a step of the group.",
          CutOverBuckets())) {
  for (const bool bind : {true, false}) {
    for (const SwitchOutcome outcome : {SwitchOutcome::kDone, SwitchOutcome::kAborted,
                                        SwitchOutcome::kForced, SwitchOutcome::kFailed}) {
      for (const OwnSequences own : {OwnSequences::kShare, OwnSequences::kSequential,
                                     OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
        Switches(bind, outcome, own);
      }
    }
  }
  for (const SharedMode to : {SharedMode::kWas, SharedMode::kCas}) {
    for (const SwitchOutcome outcome :
         {SwitchOutcome::kDone, SwitchOutcome::kAborted, SwitchOutcome::kFailed}) {
      ModeChanges(to, outcome);
    }
  }
}

prometheus::Counter& FormationMetrics::Switches(bool bind, SwitchOutcome outcome,
                                                OwnSequences own) {
  return metrics_->Counter("skein_formation_switches_total",
                           "Switches of formations that have ended, by kind and outcome, and by "
                           "how own sequences fare in the bind.",
                           {{"kind", KindOf(bind)},
                            {"outcome", std::string(scheduler::orchestrator::NameOf(outcome))},
                            {"own", std::string(ToString(own))}});
}

prometheus::Counter& FormationMetrics::ModeChanges(SharedMode to, SwitchOutcome outcome) {
  return metrics_->Counter(
      "skein_shared_mode_changes_total",
      "Changes of the mode of instances that share their weights, by the new mode and outcome.",
      {{"to", ToString(to)}, {"outcome", std::string(scheduler::orchestrator::NameOf(outcome))}});
}

prometheus::Histogram& FormationMetrics::Drain(bool bind) {
  return metrics_->Histogram(
      "skein_formation_drain_seconds",
      "Of releases: from the order until the last bound sequence had left. Of binds before which "
      "own sequences end: the longest that an instance waited for its own.",
      DrainBuckets(), {{"kind", KindOf(bind)}});
}

// Where a bind does not wait for own sequences, its drain is the wait for one own step in flight, a
// part of the cut-over.
void FormationMetrics::Count(const scheduler::FormationSwitched& switched) {
  const SwitchEnded& ended = switched.ended;
  const bool bind = IsBind(ended);
  Switches(bind, ended.outcome, ended.own).Increment();
  unanswered_.Increment(static_cast<double>(ended.unanswered.size()));
  const double drain_s = static_cast<double>(ended.drain_us) * kSecond;
  if (bind && ended.outcome == SwitchOutcome::kDone) {
    cut_over_.Observe(static_cast<double>(ended.cut_over_us) * kSecond);
    if (scheduler::OwnEndFirst(ended.own, /*leads=*/false)) bind_drain_.Observe(drain_s);
  } else if (!bind && ended.outcome != SwitchOutcome::kFailed) {
    release_drain_.Observe(drain_s);
  }
}

void FormationMetrics::Count(const scheduler::SharedModeChanged& changed) {
  ModeChanges(changed.changed.to, changed.changed.outcome).Increment();
}

void SetFormations(const std::vector<scheduler::GroupStatus>& groups, Metrics* metrics) {
  for (const scheduler::GroupStatus& group : groups) {
    std::map<std::string, size_t> instances = {{"independent", 0}};
    for (const scheduler::FormationStatus& formation : group.formations) {
      // Until they are bound, they work alone.
      const bool alone = formation.stage == "binding";
      instances[alone ? "independent" : formation.name] += formation.members.size();
    }
    for (const auto& [name, count] : instances) {
      metrics
          ->Gauge("skein_formation", "Instances of a group that are in a formation.",
                  {{"model_name", group.model}, {"group", group.name}, {"formation", name}})
          .Set(static_cast<double>(count));
    }
  }
}

}  // namespace skein::services
