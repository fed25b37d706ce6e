// The orchestrator: registry of instances and planner of requests.
#include <cstdio>
#include <string>

#include "services/base/process.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_process.h"
#include "services/orchestrator/planning_options.h"

int main(int argc, char** argv) {
  skein::services::FlagSet flags("Skein's orchestrator: knows the instances, plans the requests.");
  skein::services::OrchestratorOptions options;
  options.Register(&flags);
  const int code = skein::services::StartProcess("orchestrator", argc, argv, &flags);
  if (code >= 0) return code;
  const auto planning = skein::services::LoadPlanning(options);
  if (!planning.ok()) {
    std::fprintf(stderr, "orchestrator: %s\n", std::string(planning.status().message()).c_str());
    return 2;
  }
  return skein::services::EndProcess(skein::services::RunOrchestrator(options, *planning));
}
