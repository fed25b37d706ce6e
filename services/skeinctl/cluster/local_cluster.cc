#include "services/skeinctl/cluster/local_cluster.h"

#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/base/file.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

std::string ValueOf(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

std::string TextOf(const Json& json, const char* field) {
  const auto it = json.find(field);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

bool IsRunning(int64_t pid) { return kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM; }

}  // namespace

std::string LocalClusterPath(const Environment& environment) {
  const std::string run = ValueOf(environment, "SKEIN_RUN_DIR");
  if (!run.empty()) return run + "/local.json";
  const std::string state = ValueOf(environment, "XDG_STATE_HOME");
  if (!state.empty()) return state + "/skein/local.json";
  return ValueOf(environment, "HOME") + "/.local/state/skein/local.json";
}

absl::StatusOr<LocalCluster> ParseLocalCluster(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  LocalCluster cluster{.orchestrator = TextOf(json, "orchestrator"),
                       .url = TextOf(json, "url"),
                       .run_dir = TextOf(json, "run_dir"),
                       .processes = {}};
  if (cluster.orchestrator.empty()) {
    return absl::InvalidArgumentError("orchestrator: missing or not a string");
  }
  const auto processes = json.find("processes");
  if (processes == json.end()) return cluster;
  if (!processes->is_array()) return absl::InvalidArgumentError("processes: not an array");
  for (const Json& one : *processes) {
    const auto pid = one.is_object() ? one.find("pid") : one.end();
    if (!one.is_object() || pid == one.end() || !pid->is_number_integer()) {
      return absl::InvalidArgumentError("processes: an entry has no pid");
    }
    cluster.processes.push_back({TextOf(one, "name"), TextOf(one, "role"), pid->get<int64_t>(),
                                 TextOf(one, "log"), TextOf(one, "admin")});
  }
  return cluster;
}

absl::StatusOr<LocalCluster> ReadLocalCluster(const Environment& environment) {
  const std::string path = LocalClusterPath(environment);
  if (!std::filesystem::exists(path)) {
    return absl::NotFoundError(absl::StrCat("deploy/local/up has written no ", path));
  }
  const auto text = ReadFile(path);
  if (!text.ok()) return text.status();
  auto cluster = ParseLocalCluster(*text);
  if (!cluster.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", std::string(cluster.status().message())));
  }
  return cluster;
}

absl::StatusOr<LocalCluster> FindLocalCluster(const Environment& environment) {
  auto cluster = ReadLocalCluster(environment);
  if (!cluster.ok()) return cluster.status();
  std::optional<int64_t> gone;
  for (const LocalProcess& process : cluster->processes) {
    if (process.role != "orchestrator") continue;
    if (IsRunning(process.pid)) return cluster;
    gone = process.pid;
  }
  if (!gone.has_value()) return cluster;
  return absl::UnavailableError(absl::StrCat("the cluster of ", LocalClusterPath(environment),
                                             " is not running: its orchestrator, pid ", *gone,
                                             ", is gone"));
}

}  // namespace skein::services
