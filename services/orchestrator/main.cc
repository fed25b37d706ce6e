// The orchestrator: registry of instances and planner of requests.
#include "services/base/process.h"
#include "services/orchestrator/options.h"
#include "services/orchestrator/orchestrator_process.h"

int main(int argc, char** argv) {
  skein::services::FlagSet flags("Skein's orchestrator: knows the instances, plans the requests.");
  skein::services::OrchestratorOptions options;
  options.Register(&flags);
  const int code = skein::services::StartProcess("orchestrator", argc, argv, &flags);
  if (code >= 0) return code;
  return skein::services::EndProcess(skein::services::RunOrchestrator(options));
}
