// The orchestrator: registry of instances and planner of requests.
#include "services/base/process.h"
#include "services/orchestrator/candidacy.h"
#include "services/orchestrator/formation_options.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_process.h"
#include "services/orchestrator/planning_options.h"

int main(int argc, char** argv) {
  using namespace skein::services;
  namespace scheduler = skein::scheduler;
  OrchestratorOptions options;
  FlagSet flags;
  options.Register(&flags);
  absl::StatusOr<std::shared_ptr<const scheduler::PlanningConfig>> planning;
  flags.Check([&] { return CheckCandidacy(options); });
  flags.Check([&] {
    planning = LoadPlanning(options);
    return planning.status();
  });
  absl::StatusOr<scheduler::orchestrator::FormationConfig> formations;
  flags.Check([&] {
    formations = FormationsFrom(options);
    return formations.status();
  });
  const int code = StartProcess("orchestrator", options.log_level, argc, argv, &flags);
  if (code >= 0) return code;
  return EndProcess(RunOrchestrator(options, *planning, *formations), flags);
}
