// Why a handoff took a slower path than it could have: the reasons that are counted, and their text
// for operators.
#pragma once

#include <string>
#include <vector>

#include "scheduler/base/messages.h"
#include "scheduler/orchestrator/explain/explanation.h"

namespace skein::scheduler {

// The reasons that are counted. Empty: no faster path is known, or the path was not reported.
std::vector<Degraded> SlowerBy(const HandoffPath& path);

// Why no faster path was taken; "" if SlowerBy gives none. Nodes are those that the instances
// registered with; "": not known any more.
std::string WhySlower(const HandoffPath& path, const std::string& prefill_node,
                      const std::string& decode_node);

}  // namespace skein::scheduler
