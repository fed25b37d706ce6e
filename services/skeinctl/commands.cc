#include "services/skeinctl/command.h"

// The table of commands. One line each.
#include "services/skeinctl/bench/bench.h"
#include "services/skeinctl/drain.h"
#include "services/skeinctl/explain.h"
#include "services/skeinctl/fit.h"
#include "services/skeinctl/logs.h"
#include "services/skeinctl/plan.h"
#include "services/skeinctl/profile.h"
#include "services/skeinctl/profile_rate.h"
#include "services/skeinctl/reference_commands.h"
#include "services/skeinctl/requests.h"
#include "services/skeinctl/simulate.h"
#include "services/skeinctl/status.h"

namespace skein::services {

const std::vector<Command>& Commands() {
  static const auto* commands = new std::vector<Command>{
      MakeCommand<StatusFlags>("status", RunStatus),
      MakeCommand<TopFlags>("top", RunTop),
      MakeCommand<RequestsFlags>("requests", RunRequests),
      MakeCommand<ExplainFlags>("explain", RunExplain),
      MakeCommand<DrainFlags>("drain", RunDrain),
      MakeCommand<LogsFlags>("logs", RunLogs),
      MakeCommand<PlanFlags>("plan", RunPlan),
      MakeCommand<FitFlags>("fit", RunFit),
      MakeCommand<ProfileFlags>("profile", RunProfile),
      MakeCommand<SimulateFlags>("simulate", RunSimulate),
      MakeCommand<ProfileRateFlags>("profile-rate", RunProfileRate),
      MakeCommand<bench::BenchFlags>("bench", RunBench),
      MakeCommand<CompletionFlags>("completion", RunCompletion),
      MakeCommand<DocsFlags>("docs", RunDocs),
  };
  return *commands;
}

}  // namespace skein::services
