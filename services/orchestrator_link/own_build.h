// What this process tells of its build, and whether it may speak with the orchestrator.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "scheduler/base/peer_build.h"
#include "services/base/version.h"

namespace skein::services {

inline scheduler::PeerBuild OwnBuild() { return {kVersion, scheduler::kProtocol}; }

// Of the welcome's sender, by a worker or router (`what`). FAILED_PRECONDITION names both versions.
// An orchestrator that knows of revisions has compared them before; one of 0.3.0 has not.
inline absl::Status CheckOrchestrator(const scheduler::PeerBuild& orchestrator,
                                      std::string_view what) {
  return scheduler::CheckProtocol(OwnBuild(), what, orchestrator, "orchestrator");
}

}  // namespace skein::services
