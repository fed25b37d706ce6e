// The orchestrator: registry of instances and planner of requests.
#include "services/base/process.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_process.h"
#include "services/orchestrator/planning_options.h"

int main(int argc, char** argv) {
  using namespace skein::services;
  OrchestratorOptions options;
  FlagSet flags;
  options.Register(&flags);
  const int code = StartProcess("orchestrator", options.log_level, argc, argv, &flags);
  if (code >= 0) return code;
  const auto planning = LoadPlanning(options);
  if (!planning.ok()) return EndProcess(planning.status(), flags);
  return EndProcess(RunOrchestrator(options, *planning), flags);
}
