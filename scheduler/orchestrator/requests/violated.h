// The status of a violated invariant of OrchestratorCore (orchestrator_core.h numbers them).
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler::orchestrator {

inline absl::Status Violated(int number, RequestId id, const char* what) {
  return absl::InternalError(
      absl::StrCat("OrchestratorCore ", number, ": ", ToString(id), " ", what));
}

}  // namespace skein::scheduler::orchestrator
