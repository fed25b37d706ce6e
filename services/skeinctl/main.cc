// skeinctl: the operator's command.
#include <cstdio>
#include <string>

#include "services/skeinctl/explain.h"
#include "services/skeinctl/fit.h"
#include "services/skeinctl/plan.h"
#include "services/skeinctl/profile.h"
#include "services/skeinctl/profile_rate.h"
#include "services/skeinctl/simulate.h"
#include "services/skeinctl/status.h"

namespace {

constexpr char kUsage[] =
    "skeinctl: the operator's command\n\n"
    "  skeinctl status [--orchestrator HOST:PORT] [--format table|json]\n"
    "      the instances, their load and blocks\n"
    "  skeinctl explain REQUEST [--orchestrator HOST:PORT] [--format text|json]\n"
    "      how a request was planned, what else there was, and why not\n"
    "  skeinctl plan --profile P --node-size 8 [--improvement-rate R] [--policy "
    "tetris|single|rolling]\n"
    "      how prompts would be prefilled; JSON lines from standard input to standard output\n"
    "  skeinctl fit SAMPLES.csv\n"
    "      a latency profile from measured samples\n"
    "  skeinctl profile [--orchestrator HOST:PORT] [--model NAME]\n"
    "      the latency profile of a running cluster, measured\n"
    "  skeinctl simulate --trace short|medium|long|FILE --rate R[,R...] [--policies P[,P...]]\n"
    "      what a cluster would do under a load, by planning policy\n"
    "  skeinctl profile-rate --trace short|medium|long|FILE --rate R[,R...] [--out FILE]\n"
    "      the best improvement rate per load, saved with the profile\n"
    "  skeinctl COMMAND --help\n"
    "      the flags of a command\n";

constexpr struct {
  const char* name;
  int (*run)(int, char**);
} kCommands[] = {{"status", skein::services::StatusCommand},
                 {"explain", skein::services::ExplainCommand},
                 {"plan", skein::services::PlanCommand},
                 {"fit", skein::services::FitCommand},
                 {"profile", skein::services::ProfileCommand},
                 {"profile-rate", skein::services::ProfileRateCommand},
                 {"simulate", skein::services::SimulateCommand}};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  for (const auto& command : kCommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  const bool asked = name == "--help" || name == "-h" || name == "help";
  if (!asked) std::fprintf(stderr, "skeinctl: unknown command '%s'\n\n", name.c_str());
  std::fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}
