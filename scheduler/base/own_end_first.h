// The rule by which an instance that is to be bound waits for what it runs alone. The orchestrator
// plans by it, and the decode-worker obeys it.
#pragma once

#include "scheduler/base/formation_messages.h"

namespace skein::scheduler {

// Whether what a member runs alone is to end before it is bound. `leads`: it is rank 0.
inline bool OwnEndFirst(OwnSequences own, bool leads) {
  return own == OwnSequences::kSequential || (own == OwnSequences::kSoftPreempt && !leads);
}

}  // namespace skein::scheduler
