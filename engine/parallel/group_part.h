// How one rank takes part in a step of a group.
#pragma once

#include "engine/comm/communicator.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

// The ranks of `sp` and `tp` are in the order of SpGroupOf and TpGroupOf. `sp` is not used where
// sp = 1, nor `tp` where tp = 1; either may be `all`.
struct GroupPart {
  GroupMode mode;
  Communicator* all = nullptr;
  Communicator* sp = nullptr;
  Communicator* tp = nullptr;
  CommDeadline deadline;
};

}  // namespace skein::engine
