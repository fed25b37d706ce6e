// Metrics of the formations of groups (docs/metrics.md).
#pragma once

#include <string>
#include <vector>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "services/metrics/metrics.h"

namespace skein::services {

// Counts switches as they end. Any thread.
class FormationMetrics {
 public:
  // `metrics` outlives this. All series exist from here on.
  explicit FormationMetrics(Metrics* metrics);

  void Count(const scheduler::FormationSwitched& switched);
  void Count(const scheduler::SharedModeChanged& changed);

 private:
  prometheus::Counter& Switches(bool bind, scheduler::orchestrator::SwitchOutcome outcome,
                                scheduler::OwnSequences own);
  prometheus::Histogram& Drain(bool bind);
  prometheus::Counter& ModeChanges(scheduler::SharedMode to,
                                   scheduler::orchestrator::SwitchOutcome outcome);

  Metrics* const metrics_;
  prometheus::Counter& unanswered_;
  prometheus::Histogram& bind_drain_;
  prometheus::Histogram& release_drain_;
  prometheus::Histogram& cut_over_;
};

// skein_formation of the groups as they are: a group that is no more has no series. `metrics` is
// fresh (Metrics::RenderWith).
void SetFormations(const std::vector<scheduler::GroupStatus>& groups, Metrics* metrics);

}  // namespace skein::services
