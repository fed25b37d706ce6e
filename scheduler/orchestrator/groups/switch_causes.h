// Why the switches of a group were ordered, for the explanations of requests
// (explain/switch_notes.h). Pure, but for what it notes.
//
// A call costs the live formations of the group, times their members.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "scheduler/orchestrator/explain/switch_explanation.h"
#include "scheduler/orchestrator/explain/switch_notes.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {

using BindReasons = std::map<uint64_t, BindReason>;     // of live epochs
using ReleaseCauses = std::map<uint64_t, SwitchCause>;  // of those whose end was ordered

// Of a release of the epoch that no pin and no member calls for: what some of its members are to be
// bound for `next`, or else what it was bound for, and is over.
SwitchCause CauseOfRelease(uint64_t epoch, const BindReasons& reasons,
                           std::optional<BindReason> next);

// Of the switch that `report` tells of, before its epoch is forgotten.
SwitchCause CauseOf(const SwitchEnded& report, const BindReasons& reasons,
                    const ReleaseCauses& ordered);

// Notes each switch of the group that is under way.
void NoteUnderWay(const FormationSwitch& formation, const BindReasons& reasons,
                  const ReleaseCauses& ordered, SwitchNotes* notes);

}  // namespace skein::scheduler::orchestrator
