// The page /debug/groups: which instances of a node form a group, and how each group is arranged.
#pragma once

#include <string>
#include <vector>

#include "scheduler/orchestrator/orchestrator_core.h"

namespace skein::services {

// JSON: {"groups": [{"role", "model", "node" (null: its instance tells none), "instances",
// "formation", "for_s", "why"}]}.
std::string GroupsJson(const std::vector<scheduler::GroupStatus>& groups);

}  // namespace skein::services
