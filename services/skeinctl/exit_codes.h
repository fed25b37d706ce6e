// Exit codes of skeinctl, the same for every command. Help, man pages and docs/flags.md are made
// from this table.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/flags/command_line.h"

namespace skein::services {

enum : int {
  // status: the cluster serves, but something is lost or broken; formation --verify, chaos: a check
  // failed
  kDegraded = 3,
  kCannotServe = 4,  // status: no orchestrator; or a model, or all clients, without service
  kNotFound = 5,     // no such request, instance or process
  kNotInTime = 6,    // drain --wait, bind, release: not done by the deadline
};

struct ExitCodeMeaning {
  int code;
  const char* brief;
  const char* meaning;  // a sentence without full stop
};

inline constexpr ExitCodeMeaning kExitCodes[] = {
    {kDone, "done or healthy", "the command succeeded; the cluster is healthy"},
    {kFailed, "failed", "the cluster did not answer, refused, or the operation failed"},
    {kUsage, "wrong usage", "wrong usage; nothing was done"},
    {kDegraded, "degraded", "the cluster serves, but something is lost or broken"},
    {kCannotServe, "cannot serve",
     "a model or all clients are without service; status: the orchestrator does not answer"},
    {kNotFound, "not found", "no such request, instance or process"},
    {kNotInTime, "not in time",
     "a drain, or a change of a formation, did not finish by its deadline"},
};

// A sentence for help texts: "Exit codes: 0 done or healthy, 1 failed, ..."
std::string ExitCodesHelp();

// INVALID_ARGUMENT: kUsage. NOT_FOUND: kNotFound. DEADLINE_EXCEEDED: kNotInTime. Others: kFailed.
int ExitCodeOf(const absl::Status& status);

}  // namespace skein::services
