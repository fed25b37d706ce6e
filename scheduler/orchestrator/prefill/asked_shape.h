// Which prefill instances compute a prompt whose submitter asks for a shape (PrefillShape), such as
// skeinctl profile: the first by id, of one node where one has as many. With tp > 1 they must be of
// one node. Pure.
#pragma once

#include <set>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/orchestrator/registry/registry.h"

namespace skein::scheduler::orchestrator {

struct AskedInstances {
  std::vector<InstanceId> members;  // by rank; empty: too few take a plan now
  size_t serving = 0;  // the most of one node, or with tp = 1 of all nodes, that may take one later
};

// `pool`: the prefill instances of the request's model. Only those with an address for others can
// be members; those in `tried` are left out now.
AskedInstances InstancesOfShape(const PoolView& pool, const PrefillShape& shape,
                                const std::set<InstanceId>& tried);

}  // namespace skein::scheduler::orchestrator
