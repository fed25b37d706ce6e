// The page /debug/groups: which instances of a node form a group, and how each group is arranged.
#pragma once

#include <string>
#include <vector>

#include "scheduler/orchestrator/orchestrator_core.h"

namespace skein::services {

// JSON: {"groups": [{"role", "model", "node" (null: its instance tells none), "instances",
// "formation", "for_s", "why", "generation" (of its communicators; 0: none were ordered), "ready"
// (members that have made them)}]}.
std::string GroupsJson(const std::vector<scheduler::GroupStatus>& groups);

}  // namespace skein::services
