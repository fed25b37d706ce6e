#include "scheduler/orchestrator/registry/resync.h"

#include "scheduler/base/plant.h"

namespace skein::scheduler {

std::vector<HeldRequest> UnknownOf(const std::map<RequestId, Placement>& placed,
                                   const std::vector<HeldRequest>& held, uint64_t first_epoch) {
  std::vector<HeldRequest> unknown;
  for (const HeldRequest& one : held) {
    if (one.epoch.value < first_epoch && !SKEIN_PLANT(stream_dropped_at_resync)) continue;
    const auto it = placed.find(one.id);
    if (it == placed.end() || it->second.epoch != one.epoch) unknown.push_back({one.id, one.epoch});
  }
  return unknown;
}

PlacedAndHeld CompareHeld(const std::map<RequestId, Placement>& placed,
                          const std::vector<HeldRequest>& held) {
  std::map<RequestId, const HeldRequest*> by_id;
  for (const HeldRequest& one : held) by_id[one.id] = &one;
  PlacedAndHeld result;
  for (const auto& [id, placement] : placed) {
    const auto it = by_id.find(id);
    if (it != by_id.end() && it->second->epoch == placement.epoch) {
      result.held.push_back(*it->second);
    } else {
      result.missing.push_back({id, placement.epoch});
    }
  }
  return result;
}

}  // namespace skein::scheduler
