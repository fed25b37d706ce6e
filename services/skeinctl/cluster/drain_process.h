// skeinctl drain --admin: a process is asked itself, at its admin port.
#pragma once

#include "absl/status/status.h"
#include "services/skeinctl/cluster/drain.h"

namespace skein::services {

// Orders what the flags say and, if they say so, waits; prints the progress. FAILED_PRECONDITION
// and PERMISSION_DENIED: it refused; UNAVAILABLE: it does not answer; DEADLINE_EXCEEDED: not
// drained in time. A process that ends while it is waited for is done.
absl::Status DrainProcess(const DrainFlags& flags);

}  // namespace skein::services
