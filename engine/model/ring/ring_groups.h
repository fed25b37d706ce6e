// The communicators of a ring step. Internal to engine/.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/step.h"

namespace skein::engine {

// Those that it has, in an order that is the same on every rank.
inline std::vector<Communicator*> GroupsOf(const RingStep& step) {
  std::vector<Communicator*> groups;
  for (Communicator* const group : {step.comm, step.moves, step.tensor}) {
    if (group != nullptr) groups.push_back(group);
  }
  return groups;
}

}  // namespace skein::engine
