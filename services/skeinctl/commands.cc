#include "services/skeinctl/command.h"

// The table of commands, one line each.
#include "services/skeinctl/bench/bench.h"
#include "services/skeinctl/chaos/chaos.h"
#include "services/skeinctl/cluster/drain.h"
#include "services/skeinctl/cluster/explain.h"
#include "services/skeinctl/cluster/formation.h"
#include "services/skeinctl/cluster/formation_orders.h"
#include "services/skeinctl/cluster/jobs.h"
#include "services/skeinctl/cluster/logs.h"
#include "services/skeinctl/cluster/requests.h"
#include "services/skeinctl/cluster/status.h"
#include "services/skeinctl/cluster/trace.h"
#include "services/skeinctl/cluster/transports.h"
#include "services/skeinctl/keys/keys.h"
#include "services/skeinctl/planning/fit.h"
#include "services/skeinctl/planning/plan.h"
#include "services/skeinctl/planning/profile.h"
#include "services/skeinctl/planning/profile_rate.h"
#include "services/skeinctl/planning/simulate.h"
#include "services/skeinctl/reference_commands.h"

namespace skein::services {

const std::vector<Command>& Commands() {
  static const auto* commands = new std::vector<Command>{
      MakeCommand<StatusFlags>("status", RunStatus),
      MakeCommand<TopFlags>("top", RunTop),
      MakeCommand<RequestsFlags>("requests", RunRequests),
      MakeCommand<ExplainFlags>("explain", RunExplain),
      MakeCommand<TraceFlags>("trace", RunTrace),
      MakeCommand<TransportsFlags>("transports", RunTransports),
      MakeCommand<FormationFlags>("formation", RunFormation),
      MakeCommand<BindFlags>("bind", RunBind),
      MakeCommand<ShareFlags>("share", RunShare),
      MakeCommand<ReleaseFlags>("release", RunRelease),
      MakeCommand<PinFlags>("pin", RunPin),
      MakeCommand<UnpinFlags>("unpin", RunUnpin),
      MakeCommand<JobsFlags>("jobs", RunJobs),
      MakeCommand<DrainFlags>("drain", RunDrain),
      MakeCommand<LogsFlags>("logs", RunLogs),
      MakeCommand<KeysFlags>("keys", RunKeys),
      MakeCommand<PlanFlags>("plan", RunPlan),
      MakeCommand<FitFlags>("fit", RunFit),
      MakeCommand<ProfileFlags>("profile", RunProfile),
      MakeCommand<SimulateFlags>("simulate", RunSimulate),
      MakeCommand<ProfileRateFlags>("profile-rate", RunProfileRate),
      MakeCommand<bench::BenchFlags>("bench", RunBench),
      MakeCommand<ChaosFlags>("chaos", RunChaos),
      MakeCommand<CompletionFlags>("completion", RunCompletion),
      MakeCommand<DocsFlags>("docs", RunDocs),
  };
  return *commands;
}

}  // namespace skein::services
