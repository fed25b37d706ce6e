// Shared by the main functions of all services.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "services/flags/flags.h"

namespace skein::services {

// --log-level and --log-format, which every service has. *level holds the default of the first.
void RegisterLogFlags(std::string* level, FlagSet* flags);

// Blocks the stop signals, parses flags (see flags.h) and sets up logs (`log_level` is the target
// of --log-level). Logs the effective configuration and environment variables that nearly match a
// flag's. Returns -1 to continue; otherwise the exit code after --help, --version or a wrong flag
// (see command_line.h), which main returns.
int StartProcess(const std::string& role, const std::string& log_level, int argc, char** argv,
                 FlagSet* flags);

// The exit code for a process that ends with this status. Errors are errors at start (see
// command_line.h), because a started service ends only when it is stopped; except ABORTED: the
// cluster refused it, kFailed.
int EndProcess(const absl::Status& status, const FlagSet& flags);

// The same status, with the flag in front of its message.
absl::Status AboutFlag(const std::string& flag, const absl::Status& status);

// For a server that could not listen: an invalid address (INVALID_ARGUMENT) concerns --host,
// everything else `port_flag`.
absl::Status AboutListening(const std::string& port_flag, const absl::Status& status);

// Writes "port\n" to `path` atomically. Does nothing for an empty path.
absl::Status WritePortFile(const std::string& path, int port);

// 64 random bits, not 0.
uint64_t RandomIncarnation();

}  // namespace skein::services
