// The parts that the main functions of all binaries share.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "services/flags/flags.h"

namespace skein::services {

// --log-level and --log-format, which every service has. *level holds the default of the first.
void RegisterLogFlags(std::string* level, FlagSet* flags);

// Blocks the stop signals, parses flags (see flags.h), sets up logs (`log_level` is the target of
// --log-level) and writes the effective configuration to them, and which variables of the
// environment look like a flag's and are none. Returns -1 to go on; otherwise main
// returns it: the exit code after --help, --version or a wrong flag (see command_line.h).
int StartProcess(const std::string& role, const std::string& log_level, int argc, char** argv,
                 FlagSet* flags);

// The exit code of a process that ends with this status: an error is one at start (see
// command_line.h), since a service that has started ends by being stopped; or ABORTED: the cluster
// refused it, kFailed.
int EndProcess(const absl::Status& status, const FlagSet& flags);

// The same status, with the flag that it is about in front of its message.
absl::Status AboutFlag(const std::string& flag, const absl::Status& status);

// Of a server that could not start to listen: an address that is none (INVALID_ARGUMENT) is about
// --host, all else about `port_flag`.
absl::Status AboutListening(const std::string& port_flag, const absl::Status& status);

// Writes "port\n" to `path` so that a reader never sees half of it. Nothing for an empty path.
absl::Status WritePortFile(const std::string& path, int port);

// 64 random bits, not 0.
uint64_t RandomIncarnation();

}  // namespace skein::services
