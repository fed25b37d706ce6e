#include "scheduler/orchestrator/prefill/pool_layout.h"

#include <algorithm>

namespace skein::scheduler {

int PoolLayout::SlotOf(InstanceId instance) const {
  const auto it = std::find(slots.begin(), slots.end(), instance);
  return it == slots.end() ? -1 : static_cast<int>(it - slots.begin());
}

PoolLayout LayOut(std::vector<std::pair<std::string, InstanceId>> by_host, int node_size) {
  std::sort(by_host.begin(), by_host.end());
  PoolLayout layout;
  const auto size = static_cast<size_t>(node_size);
  for (size_t i = 0; i < by_host.size(); ++i) {
    const bool next_host = i > 0 && by_host[i].first != by_host[i - 1].first;
    while (next_host && layout.slots.size() % size != 0) layout.slots.push_back(InstanceId{});
    layout.slots.push_back(by_host[i].second);
  }
  layout.cluster = {static_cast<int>(layout.slots.size()), node_size};
  return layout;
}

}  // namespace skein::scheduler
