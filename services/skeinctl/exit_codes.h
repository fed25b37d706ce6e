// Exit codes of skeinctl, the same for every command: the one description of them, of which help,
// man pages and docs/flags.md are made.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/flags/command_line.h"

namespace skein::services {

enum : int {
  kDegraded = 3,     // status: the cluster serves, but something is lost or broken
  kCannotServe = 4,  // status: no orchestrator, or a model, or every client, without service
  kNotFound = 5,     // there is no such request, instance or process
  kNotInTime = 6,    // drain --wait: not drained by the deadline
};

struct ExitCodeMeaning {
  int code;
  const char* brief;
  const char* meaning;  // a sentence without its full stop
};

inline constexpr ExitCodeMeaning kExitCodes[] = {
    {kDone, "done or healthy", "what was asked is done; the cluster is healthy"},
    {kFailed, "failed", "the cluster does not answer, or refused, or what was asked failed"},
    {kUsage, "called wrongly", "called wrongly; nothing was done"},
    {kDegraded, "degraded", "the cluster serves, but something is lost or broken"},
    {kCannotServe, "cannot serve",
     "a model, or every client, is without service; status: the orchestrator does not answer"},
    {kNotFound, "not found", "there is no such request, instance or process"},
    {kNotInTime, "not in time", "a drain was not over by its deadline"},
};

// A sentence for help texts: "Exit codes: 0 done or healthy, 1 failed, ..."
std::string ExitCodesHelp();

// INVALID_ARGUMENT is usage, NOT_FOUND not found, DEADLINE_EXCEEDED not in time, the rest failed.
int ExitCodeOf(const absl::Status& status);

}  // namespace skein::services
