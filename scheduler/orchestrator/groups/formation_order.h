// What people order about the formation of a group (skeinctl bind, share, release, pin, unpin).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler::orchestrator {

struct FormationOrder {
  enum class Act {
    kBind,     // and pin
    kRelease,  // and pin: they work alone
    kPin,      // what is now stays, whatever the policy says
    kUnpin,    // the policy decides again
    kShare,    // their weights, and pin
  };
  Act act = Act::kPin;
  // kBind, kShare: exactly these, together. Otherwise: each formation that one of them is in.
  std::vector<InstanceId> instances;
  std::string group;  // its name (GroupStatus), in place of instances: all of the group
  // kBind and kShare of a group: of each formation; 0: as many as can be bound together.
  int32_t size = 0;
  Switch how = Switch::kSequential;  // kRelease, and a kBind that releases others before
  // kBind: as in PrepareFormation.
  OwnSequences own = OwnSequences::kShare;
  std::optional<ShiftRule> shift = {};  // in place of the profile's
  // kShare: always in this mode; empty: the orchestrator chooses, and changes it.
  std::optional<SharedMode> shared = {};
};

}  // namespace skein::scheduler::orchestrator
