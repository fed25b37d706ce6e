// skeinctl drain --admin: drains a process through its own admin port.
#pragma once

#include "absl/status/status.h"
#include "services/skeinctl/cluster/drain.h"

namespace skein::services {

// Sends the order given by the flags and, if requested, waits; prints the progress.
// FAILED_PRECONDITION, PERMISSION_DENIED: refused. UNAVAILABLE: no answer. DEADLINE_EXCEEDED: not
// drained in time. A process that ends while it is waited for counts as drained.
absl::Status DrainProcess(const DrainFlags& flags);

}  // namespace skein::services
