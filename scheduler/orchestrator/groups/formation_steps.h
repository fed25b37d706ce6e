// What is left to do until a group is bound as was chosen: what is bound or being bound and not
// chosen is released, what is chosen and free is bound. Pure; the rule of Formations, which carries
// it out in an orchestrator, and of the simulator.
//
// A call costs the live formations of the group, times its members and what was chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {

// What is bound, or being bound, for the policy; what shares its weights is not. Those of epochs
// without a reason, and of members that are no neighbours in the latest order any more, are left
// out.
std::vector<GroupLoad::Present> PresentIn(const FormationSwitch& formation,
                                          const std::map<uint64_t, BindReason>& reasons);

// Likewise, what shares its weights, or is about to.
std::vector<Subset> SharedPresentIn(const FormationSwitch& formation);

struct ReleaseStep {
  uint64_t epoch = 0;
  InstanceId lead;
  Switch how = Switch::kSequential;
  bool operator==(const ReleaseStep&) const = default;
};
// Releases that are due, by epoch: of each live formation that is none of `chosen`, the members by
// rank, and is not released yet, or more kindly than `how` says now.
using ReleaseHow = std::function<Switch(const FormationSwitch::Live& live)>;
std::vector<ReleaseStep> ReleaseSteps(const FormationSwitch& formation,
                                      const std::vector<std::vector<InstanceId>>& chosen,
                                      const ReleaseHow& how);

// Whether none of them is a member of a live formation, so that they can be bound.
bool IsFree(const FormationSwitch& formation, const std::vector<InstanceId>& members);

}  // namespace skein::scheduler::orchestrator
