// The state file of the cluster that deploy/local/up started on this machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

struct LocalProcess {
  std::string name;  // "prefill-0"
  std::string role;
  int64_t pid = 0;
  std::string log;    // file
  std::string admin;  // host:port
};

struct LocalCluster {
  std::string orchestrator;  // host:port, or several as CellOrchestrators takes them
  std::string url;           // of the router
  std::string run_dir;
  std::vector<LocalProcess> processes;
};

using Environment = std::map<std::string, std::string>;

// $SKEIN_RUN_DIR/local.json, else $XDG_STATE_HOME/skein/local.json, else
// $HOME/.local/state/skein/local.json.
std::string LocalClusterPath(const Environment& environment);

// INVALID_ARGUMENT names a missing or malformed field.
absl::StatusOr<LocalCluster> ParseLocalCluster(const std::string& text);

// NOT_FOUND: no such file. FAILED_PRECONDITION: the file is malformed.
absl::StatusOr<LocalCluster> ReadLocalCluster(const Environment& environment);
// The same; UNAVAILABLE when none of its orchestrators is running.
absl::StatusOr<LocalCluster> FindLocalCluster(const Environment& environment);

}  // namespace skein::services
