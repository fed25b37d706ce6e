// Which number a planner gives to an instance. Planners number instances so that node_size
// neighbours are a node (plan.h); here the numbers are called slots.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

struct PoolLayout {
  Cluster cluster;                // .instances is the number of slots
  std::vector<InstanceId> slots;  // none: a slot without an instance, which fills up a small node

  int SlotOf(InstanceId instance) const;  // -1: it has none
  bool operator==(const PoolLayout& other) const { return slots == other.slots; }
};

// The instances of one host are cut into nodes of `node_size`, by id; hosts are ordered by name.
// Nodes that stay smaller are filled up with slots without an instance, but for the last one.
// REQUIRES node_size >= 1.
PoolLayout LayOut(std::vector<std::pair<std::string, InstanceId>> by_host, int node_size);

}  // namespace skein::scheduler
