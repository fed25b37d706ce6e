// Exit codes of skeinctl beside kDone, kFailed and kUsage, the same for every command.
#pragma once

#include "absl/status/status.h"
#include "services/base/command_line.h"

namespace skein::services {

enum : int {
  kDegraded = 3,     // status: the cluster serves, but something is lost or broken
  kCannotServe = 4,  // status: a model, or every client, is without service
  kNotFound = 5,     // there is no such request, instance or process
  kNotInTime = 6,    // drain --wait: not drained by the deadline
};

// For help texts.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 done or healthy, 1 failed, 2 called wrongly, 3 degraded, 4 cannot serve, 5 not "
    "found, 6 not in time.";

// INVALID_ARGUMENT is usage, NOT_FOUND not found, DEADLINE_EXCEEDED not in time, the rest failed.
int ExitCodeOf(const absl::Status& status);

}  // namespace skein::services
