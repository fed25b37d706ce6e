// What every binary's main does around its own work.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "services/base/flags.h"

namespace skein::services {

// Blocks the stop signals, parses flags (see flags.h), sets up logs and writes the effective
// configuration to them. Returns -1 to go on; otherwise main returns it: 0 after --help, 2 when a
// flag is wrong (printed to stderr).
int StartProcess(const std::string& role, int argc, char** argv, FlagSet* flags);

// Logs the status; the exit code of a process that ends with it (0 or 1).
int EndProcess(const absl::Status& status);

// Writes "port\n" to `path` so that a reader never sees half of it. Nothing for an empty path.
absl::Status WritePortFile(const std::string& path, int port);

// 64 random bits, not 0.
uint64_t RandomIncarnation();

}  // namespace skein::services
