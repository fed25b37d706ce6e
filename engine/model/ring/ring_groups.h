// The communicators of a ring step. Internal to engine/.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/step.h"

namespace skein::engine {

// Those that it has, in an order that is the same on every rank: that of some ranks before those of
// all, so that whoever has met on all of them knows that every rank has.
inline std::vector<Communicator*> GroupsOf(const RingStep& step) {
  std::vector<Communicator*> groups;
  for (Communicator* const group : {step.tensor, step.comm, step.moves}) {
    if (group != nullptr) groups.push_back(group);
  }
  return groups;
}

}  // namespace skein::engine
