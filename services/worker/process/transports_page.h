// GET /debug/transports of a prefill-worker: the path that KV took to each decode instance and
// between the instances of ring steps, its rate, and why no faster path was used.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/paths/comm_ledger.h"
#include "engine/handoff/handoff_peers.h"

namespace skein::services {

// {"handoffs": [{endpoint, transport, path, bytes, busy_s, gb_per_s, why_not_faster}],
//  "groups": [{instances, path, bytes, busy_s, gb_per_s, best_gb_per_s, why_not_faster}]}
// Only what moved bytes. Handoffs to peers that are gone, of no endpoint, are left out.
std::string TransportsJson(const std::vector<engine::HandoffTotals>& handoffs,
                           const std::vector<engine::CommTotals>& groups);

}  // namespace skein::services
