// What people read about an instance or a router in the orchestrator's status. Pure.
#pragma once

#include "proto/orchestrator.pb.h"

namespace skein::services {

// "prefill", "decode"; "unknown".
const char* RoleName(v1::Role role);
// "serving", or the first of these that is true: "missed", "broken", "drained", "draining",
// "hangs", "suspect", "aside", "starting".
const char* StateName(const v1::InstanceStatus& instance);
// "serving", "draining", "drained".
const char* StateName(const v1::RouterStatus& router);

}  // namespace skein::services
