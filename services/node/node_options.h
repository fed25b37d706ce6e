// Flags of skein-node, and the programs that follow them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/admin/admin_server.h"
#include "services/flags/flags.h"
#include "services/node/child.h"

namespace skein::services {

struct NodeOptions {
  std::string instances;  // "8", or "4,4" for two programs
  int64_t min_ready = 0;  // 0: all
  AdminOptions admin{.port = 7400};
  RestartDelays delays;
  double stop_grace_s = 0;
  std::string log_level = "info";

  void Register(FlagSet* flags);
};

// The command of one instance, and the address of its admin port.
struct InstanceCommand {
  std::vector<std::string> command;
  std::string admin_host;
  uint16_t admin_port = 0;
};

// `programs`: each a program with its arguments, as they follow a "--". INVALID_ARGUMENT names
// every problem, one per line: wrong numbers, wrong expressions in braces, a missing or shared
// --admin-port.
absl::StatusOr<std::vector<InstanceCommand>> MakeCommands(
    const NodeOptions& options, const std::vector<std::vector<std::string>>& programs);

}  // namespace skein::services
