// Resync: what the state that a worker tells at the begin of a stream differs by from what the
// orchestrator believes to be there. Part of OrchestratorCore.
//
// All that was sent on the stream before and did not arrive is the last part of what was sent:
// nothing that was lost is followed by something that arrived.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/orchestrator/registry/registry.h"

namespace skein::scheduler {

// Held by the worker and not believed to be there: it cancels them. Requests of a predecessor, with
// epochs below `first_epoch`, are left alone.
std::vector<HeldRequest> UnknownOf(const std::map<RequestId, Placement>& placed,
                                   const std::vector<HeldRequest>& held, uint64_t first_epoch);

// The requests in `placed`, in its order.
struct PlacedAndHeld {
  std::vector<HeldRequest> held;     // as the worker tells them, under the same epoch
  std::vector<HeldRequest> missing;  // not held, or under another epoch; with the epoch of `placed`
};
PlacedAndHeld CompareHeld(const std::map<RequestId, Placement>& placed,
                          const std::vector<HeldRequest>& held);

}  // namespace skein::scheduler
