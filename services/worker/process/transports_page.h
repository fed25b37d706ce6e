// GET /debug/transports of a worker. Prefill: the path that KV took to each decode instance and
// between the instances of ring steps, its rate, and why no faster path was used. Decode: the same
// of the groups of its node that are ready, whether or not they moved anything yet.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/paths/comm_ledger.h"
#include "engine/handoff/handoff_peers.h"

namespace skein::services {

// {"handoffs": [{endpoint, transport, path, bytes, busy_s, gb_per_s, why_not_faster}],
//  "groups": [{instances, path, bytes, busy_s, gb_per_s, best_gb_per_s, why_not_faster}]}
// Of handoffs, only what moved bytes. Those to peers that are gone, of no endpoint, are left out.
std::string TransportsJson(const std::vector<engine::HandoffTotals>& handoffs,
                           const std::vector<engine::CommTotals>& groups);

}  // namespace skein::services
