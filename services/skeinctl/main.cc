// skeinctl: the operator's command.
#include <cstdio>
#include <string>

#include "services/skeinctl/fit.h"
#include "services/skeinctl/plan.h"
#include "services/skeinctl/profile.h"
#include "services/skeinctl/simulate.h"
#include "services/skeinctl/status.h"

namespace {

constexpr char kUsage[] =
    "skeinctl: the operator's command\n\n"
    "  skeinctl status [--orchestrator HOST:PORT] [--format table|json]\n"
    "      the instances, their load and blocks\n"
    "  skeinctl plan --profile P --node-size 8 [--improvement-rate R] [--policy "
    "tetris|single|rolling]\n"
    "      how prompts would be prefilled; JSON lines from standard input to standard output\n"
    "  skeinctl fit SAMPLES.csv\n"
    "      a latency profile from measured samples\n"
    "  skeinctl profile [--orchestrator HOST:PORT] [--model NAME]\n"
    "      the latency profile of a running cluster, measured\n"
    "  skeinctl simulate --trace short|medium|long|FILE --rate R[,R...] [--policies P[,P...]]\n"
    "      what a cluster would do under a load, by planning policy\n"
    "  skeinctl COMMAND --help\n"
    "      the flags of a command\n";

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "--help";
  if (command == "plan") return skein::services::PlanCommand(argc - 1, argv + 1);
  if (command == "fit") return skein::services::FitCommand(argc - 1, argv + 1);
  if (command == "profile") return skein::services::ProfileCommand(argc - 1, argv + 1);
  if (command == "status") return skein::services::StatusCommand(argc - 1, argv + 1);
  if (command == "simulate") return skein::services::SimulateCommand(argc - 1, argv + 1);
  const bool asked = command == "--help" || command == "-h" || command == "help";
  if (!asked) std::fprintf(stderr, "skeinctl: unknown command '%s'\n\n", command.c_str());
  std::fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}
