// How every Skein program reports wrong usage or a failed start.
//
// Each problem is one line of plain text on standard error, "PROGRAM: error: --flag: what is
// wrong". The exit code is kUsage: for a bad flag, an unreadable file, a model that does not load,
// a port in use. Later failures are JSON log lines of a service, and kFailed of skeinctl.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/flags/flags.h"

namespace skein::services {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // the cluster did not answer, refused, or the operation failed
  kUsage = 2,   // wrong usage; nothing was done
  // A worker's engine failed or hung; restart the process.
  kEngineFailed = 3,
};

// Prints "PROGRAM: error: ..." on standard error for each line of the status. Returns `code`.
int PrintErrors(const std::string& program, const absl::Status& status, ExitCode code);

// Parses the flags from arguments and environment. Empty: continue. Otherwise the exit code: kDone
// after printing --help or --version, kUsage after printing problems.
std::optional<int> ParseOrExit(int argc, const char* const* argv, FlagSet* flags);

}  // namespace skein::services
