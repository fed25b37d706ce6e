#include "services/orchestrator/formation_metrics.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

using scheduler::orchestrator::SwitchOutcome;

scheduler::FormationSwitched Switched(int from, int to, SwitchOutcome outcome) {
  scheduler::FormationSwitched switched{.group = "m@a",
                                        .ended = {.epoch = 1, .members = {{1}, {2}}}};
  switched.ended.from = from;
  switched.ended.to = to;
  switched.ended.outcome = outcome;
  switched.ended.drain_us = 300'000;
  switched.ended.cut_over_us = 2'000;
  return switched;
}

void ExpectHas(const Metrics& metrics, const std::string& line) {
  const std::string text = metrics.Render();
  EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << " is not in\n" << text;
}

TEST(FormationMetrics, AllSeriesExistFromTheStart) {
  Metrics metrics;
  const FormationMetrics formations(&metrics);
  for (const char* kind : {"bind", "release"}) {
    for (const char* outcome : {"done", "aborted", "forced", "failed"}) {
      for (const char* own : {"share", "sequential", "soft", "hard"}) {
        ExpectHas(metrics, std::string("skein_formation_switches_total{kind=\"") + kind +
                               "\",outcome=\"" + outcome + "\",own=\"" + own + "\"} 0");
      }
    }
  }
  for (const char* to : {"was", "cas"}) {
    for (const char* outcome : {"done", "aborted", "failed"}) {
      ExpectHas(metrics, std::string("skein_shared_mode_changes_total{outcome=\"") + outcome +
                             "\",to=\"" + to + "\"} 0");
    }
  }
  ExpectHas(metrics, "skein_formation_unanswered_total 0");
  ExpectHas(metrics, "skein_formation_drain_seconds_count{kind=\"bind\"} 0");
  ExpectHas(metrics, "skein_formation_drain_seconds_count{kind=\"release\"} 0");
  ExpectHas(metrics, "skein_formation_cut_over_seconds_count 0");
}

TEST(FormationMetrics, SwitchesCountByKindOutcomeAndHowOwnSequencesFare) {
  Metrics metrics;
  FormationMetrics formations(&metrics);
  formations.Count(Switched(1, 2, SwitchOutcome::kDone));
  scheduler::FormationSwitched hard = Switched(1, 2, SwitchOutcome::kDone);
  hard.ended.own = scheduler::OwnSequences::kHardPreempt;
  formations.Count(hard);
  formations.Count(Switched(1, 2, SwitchOutcome::kAborted));
  formations.Count(Switched(2, 1, SwitchOutcome::kForced));
  for (const char* series : {"kind=\"bind\",outcome=\"done\",own=\"share\"",
                             "kind=\"bind\",outcome=\"done\",own=\"hard\"",
                             "kind=\"bind\",outcome=\"aborted\",own=\"share\"",
                             "kind=\"release\",outcome=\"forced\",own=\"share\""}) {
    ExpectHas(metrics, std::string("skein_formation_switches_total{") + series + "} 1");
  }
}

TEST(FormationMetrics, ChangesOfTheModeCountByModeAndOutcome) {
  Metrics metrics;
  FormationMetrics formations(&metrics);
  scheduler::SharedModeChanged changed{.group = "m@a", .changed = {}};
  changed.changed.to = scheduler::SharedMode::kCas;
  changed.changed.outcome = SwitchOutcome::kDone;
  formations.Count(changed);
  formations.Count(changed);
  changed.changed.outcome = SwitchOutcome::kAborted;
  formations.Count(changed);
  ExpectHas(metrics, "skein_shared_mode_changes_total{outcome=\"done\",to=\"cas\"} 2");
  ExpectHas(metrics, "skein_shared_mode_changes_total{outcome=\"aborted\",to=\"cas\"} 1");
  ExpectHas(metrics, "skein_shared_mode_changes_total{outcome=\"done\",to=\"was\"} 0");
}

// A bind that was aborted cut over nothing, and a group that failed let no sequence end.
TEST(FormationMetrics, TimesAreOfSwitchesThatHadThem) {
  Metrics metrics;
  FormationMetrics formations(&metrics);
  formations.Count(Switched(1, 2, SwitchOutcome::kAborted));
  formations.Count(Switched(2, 1, SwitchOutcome::kFailed));
  ExpectHas(metrics, "skein_formation_drain_seconds_count{kind=\"release\"} 0");
  ExpectHas(metrics, "skein_formation_cut_over_seconds_count 0");
  formations.Count(Switched(1, 2, SwitchOutcome::kDone));
  formations.Count(Switched(2, 1, SwitchOutcome::kDone));
  ExpectHas(metrics, "skein_formation_drain_seconds_bucket{kind=\"release\",le=\"0.25\"} 0");
  ExpectHas(metrics, "skein_formation_drain_seconds_bucket{kind=\"release\",le=\"0.5\"} 1");
  ExpectHas(metrics, "skein_formation_cut_over_seconds_bucket{le=\"0.001\"} 0");
  ExpectHas(metrics, "skein_formation_cut_over_seconds_bucket{le=\"0.0025\"} 1");
}

TEST(FormationMetrics, ABindHasADrainIfItsOwnSequencesEndFirst) {
  Metrics metrics;
  FormationMetrics formations(&metrics);
  using Own = scheduler::OwnSequences;
  int drains = 0;
  for (const Own own : {Own::kShare, Own::kHardPreempt, Own::kSequential, Own::kSoftPreempt}) {
    SCOPED_TRACE(ToString(own));
    for (const SwitchOutcome outcome : {SwitchOutcome::kAborted, SwitchOutcome::kDone}) {
      scheduler::FormationSwitched switched = Switched(1, 2, outcome);
      switched.ended.own = own;
      formations.Count(switched);
    }
    if (own == Own::kSequential || own == Own::kSoftPreempt) ++drains;
    const std::string count = std::to_string(drains);
    ExpectHas(metrics, "skein_formation_drain_seconds_count{kind=\"bind\"} " + count);
    ExpectHas(metrics, "skein_formation_drain_seconds_bucket{kind=\"bind\",le=\"0.5\"} " + count);
    ExpectHas(metrics, "skein_formation_drain_seconds_bucket{kind=\"bind\",le=\"0.25\"} 0");
  }
  ExpectHas(metrics, "skein_formation_drain_seconds_count{kind=\"release\"} 0");
}

TEST(FormationMetrics, InstancesThatDidNotAnswerCount) {
  Metrics metrics;
  FormationMetrics formations(&metrics);
  scheduler::FormationSwitched switched = Switched(2, 1, SwitchOutcome::kFailed);
  switched.ended.unanswered = {{1}, {2}};
  formations.Count(switched);
  ExpectHas(metrics, "skein_formation_unanswered_total 2");
}

TEST(FormationMetrics, EachGroupTellsHowManyInstancesAreInEachFormation) {
  Metrics metrics;
  SetFormations({{.name = "m@a",
                  .model = "m",
                  .formations = {{.members = {{1}, {2}}, .name = "bound(2)"},
                                 {.members = {{3}, {4}}, .name = "bound(2)", .stage = "stands"}}},
                 {.name = "n@a",
                  .model = "n",
                  .formations = {{.members = {{5}, {6}}, .name = "bound(2)", .stage = "binding"}}}},
                &metrics);
  ExpectHas(metrics, "skein_formation{formation=\"bound(2)\",group=\"m@a\",model_name=\"m\"} 4");
  ExpectHas(metrics, "skein_formation{formation=\"independent\",group=\"m@a\",model_name=\"m\"} 0");
  ExpectHas(metrics, "skein_formation{formation=\"independent\",group=\"n@a\",model_name=\"n\"} 2");
}

}  // namespace
}  // namespace skein::services
