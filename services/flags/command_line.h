// How a Skein program ends that was called wrongly or cannot start: the same shape in all of them.
//
// Every problem is one line of plain text on standard error, "PROGRAM: error: --flag: what is
// wrong", and the exit code is kUsage: for a bad flag, a file that cannot be read, a model that
// does not load, a port in use. What goes wrong later is a JSON log line of a service, and kFailed
// of skeinctl.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/flags/flags.h"

namespace skein::services {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // the cluster does not answer, or refused, or what was asked did not come about
  kUsage = 2,   // called wrongly: nothing was done
  // A worker's engine failed or hung; restart the process.
  kEngineFailed = 3,
};

// One "PROGRAM: error: ..." line for each line of the status, on standard error. Returns `code`.
int PrintErrors(const std::string& program, const absl::Status& status, ExitCode code);

// Parses the flags from arguments and environment. Nothing: go on. Otherwise the exit code: kDone
// after --help and --version, which it prints, kUsage after problems, which it prints too.
std::optional<int> ParseOrExit(int argc, const char* const* argv, FlagSet* flags);

}  // namespace skein::services
