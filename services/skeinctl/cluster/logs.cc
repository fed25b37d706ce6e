#include "services/skeinctl/cluster/logs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/vocabulary/request_id.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/cluster/log_merge.h"
#include "services/skeinctl/terminal/screen.h"

namespace skein::services {
namespace {

constexpr auto kLook = std::chrono::milliseconds(200);

// The process id of an instance or router with this id or endpoint; 0: none.
int64_t PidOf(const v1::StatusResponse& status, const std::string& name) {
  for (const v1::InstanceStatus& one : status.instances()) {
    const v1::RegisterRequest& registration = one.registration();
    if (name == absl::StrCat(one.instance()) || name == registration.endpoint()) {
      return registration.pid();
    }
  }
  for (const v1::RouterStatus& one : status.routers()) {
    if (name == one.identity().endpoint()) return one.identity().pid();
  }
  return 0;
}

absl::StatusOr<std::vector<LocalProcess>> Chosen(const LocalCluster& cluster,
                                                 const std::string& name) {
  if (name.empty()) return cluster.processes;
  std::vector<std::string> known;
  int64_t pid = 0;
  if (const auto status = ClusterClient(cluster.orchestrator).Status(); status.ok()) {
    pid = PidOf(*status, name);
  }
  for (const LocalProcess& process : cluster.processes) {
    if (process.name == name || process.pid == pid) return std::vector<LocalProcess>{process};
    known.push_back(process.name);
  }
  return absl::NotFoundError(absl::StrCat(
      "'", name,
      "' is not a process of this cluster. Its processes: ", absl::StrJoin(known, ", ")));
}

// All names of a request from the orchestrator, because routers and workers log different ones.
// Only the given name if the orchestrator does not answer or know it.
std::set<std::string> NamesOf(const LocalCluster& cluster, const std::string& request) {
  if (request.empty()) return {};
  std::set<std::string> names = {request};
  const auto explained = ClusterClient(cluster.orchestrator).Explain(request);
  if (!explained.ok()) return names;
  for (const v1::RequestExplanation& one : explained->requests()) {
    names.insert(ToString(RequestId{one.id().router(), one.id().serial()}));
    names.insert(one.names().begin(), one.names().end());
  }
  return names;
}

absl::Status Print(const LogsFlags& flags, LogLevel level) {
  const auto cluster = ReadLocalCluster(EnvironmentMap());  // also of a stopped cluster
  if (!cluster.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "skeinctl logs reads only the cluster that deploy/local/up started on this machine: ",
        std::string(cluster.status().message())));
  }
  const auto processes = Chosen(*cluster, flags.process);
  if (!processes.ok()) return processes.status();
  const LogFilter filter{.level = level, .requests = NamesOf(*cluster, flags.request)};
  std::vector<LogReader> readers;
  size_t width = 0;
  for (const LocalProcess& process : *processes) {
    readers.emplace_back(process.name, process.log);
    width = std::max(width, process.name.size());
  }
  CatchStopSignals();
  int64_t printed = 0;
  for (LogMerge merge(std::move(readers)); !StopSignalled();) {
    const auto line = merge.Next();
    if (line.has_value()) {
      if (!filter.Passes(*line)) continue;
      ++printed;
      const std::string text = flags.format == "json" ? JsonOf(*line) : TextOf(*line, width);
      if (std::printf("%s\n", text.c_str()) < 0) break;  // the reader has closed the pipe
      continue;
    }
    if (std::fflush(stdout) != 0 || !flags.follow) break;
    WaitUnlessStopped(kLook);
  }
  if (printed == 0 && !flags.request.empty() && !flags.follow) {
    return absl::NotFoundError(absl::StrCat("no log line has request '", flags.request, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

void LogsFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Print the logs of the cluster that deploy/local/up started on this machine, merged by "
      "time.\n\n",
      ExitCodesHelp()));
  set->OptionalPositional(
      &process, "PROCESS",
      "Only this process: a name (prefill-0), or an id or endpoint as skeinctl status shows it.");
  set->Bool(&follow, "follow", "Continue with lines written from now on.");
  set->String(&request, "request", "Only lines of this request; any of its ids.").Value("ID");
  set->String(&level, "level", "Lowest level.")
      .OneOf({"debug", "info", "warning", "error"})
      .Value("LEVEL");
  RegisterFormat(&format, "text", set);
}

int RunLogs(const LogsFlags& flags) {
  const auto level = ParseLogLevel(flags.level);
  const absl::Status done = level.ok() ? Print(flags, *level) : level.status();
  return done.ok() ? int{kDone} : EndWith("logs", done);
}

}  // namespace skein::services
