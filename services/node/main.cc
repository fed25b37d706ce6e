// skein-node: starts one process per GPU of a pod and restarts those that fail.
#include <csignal>
#include <string>
#include <vector>

#include "services/base/process.h"
#include "services/flags/command_line.h"
#include "services/node/instance_view.h"
#include "services/node/node_options.h"
#include "services/node/supervisor.h"

namespace skein::services {
namespace {

// The arguments after each "--".
std::vector<std::vector<std::string>> ProgramsIn(int argc, char** argv, int* own) {
  std::vector<std::vector<std::string>> programs;
  *own = argc;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--") {
      if (programs.empty()) *own = i;
      programs.emplace_back();
    } else if (!programs.empty()) {
      programs.back().emplace_back(argv[i]);
    }
  }
  return programs;
}

// SIGTERM and SIGINT are already blocked.
void BlockChildAndReload() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

absl::Status RunNode(const NodeOptions& options, std::vector<InstanceCommand> commands) {
  BlockChildAndReload();
  InstanceView view(options, commands);
  auto admin =
      AdminServer::Start(options.admin, "127.0.0.1",
                         {.service = "node",
                          .status = [&view] { return view.Status(); },
                          .order = [&view](const DrainOrder& order) { return view.Order(order); },
                          .metrics = [&view] { return view.MetricsText(); },
                          .more = [&view](http::Routes* routes) { view.AddPages(routes); }});
  if (!admin.ok()) return admin.status();
  view.StartAsking();
  const absl::Status ran = Supervisor(options, commands, &view).Run();
  (*admin)->Stop(std::chrono::milliseconds(100));
  return ran;
}

}  // namespace
}  // namespace skein::services

int main(int argc, char** argv) {
  using namespace skein::services;
  NodeOptions options;
  FlagSet flags;
  options.Register(&flags);
  int own = 0;
  const auto programs = ProgramsIn(argc, argv, &own);
  absl::StatusOr<std::vector<InstanceCommand>> commands;
  flags.Check([&] {
    commands = MakeCommands(options, programs);
    return commands.status();
  });
  const int code = StartProcess("node", options.log_level, own, argv, &flags);
  if (code >= 0) return code;
  return EndProcess(RunNode(options, *std::move(commands)), flags);
}
