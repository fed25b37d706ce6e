// The rules by which an instance that is to be bound waits for what it runs alone, and by which it
// takes requests meanwhile. The orchestrator plans by them, and the decode-worker obeys them.
#pragma once

#include "scheduler/base/formation_messages.h"

namespace skein::scheduler {

// Whether what a member runs alone is to end before it is bound. `leads`: it is rank 0.
inline bool OwnEndFirst(OwnSequences own, bool leads) {
  return own == OwnSequences::kSequential || (own == OwnSequences::kSoftPreempt && !leads);
}

// Whether what its members run alone when the group is bound goes on in the group, computed anew.
// Then a member whose own sequences have ended takes requests while it waits for the others: they
// begin there alone (Flying Serving, section 5.2.2). Otherwise it takes none until it is bound.
inline bool OwnJoinGroup(OwnSequences own) { return own == OwnSequences::kSoftPreempt; }

}  // namespace skein::scheduler
