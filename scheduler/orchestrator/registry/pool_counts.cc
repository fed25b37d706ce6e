#include "scheduler/orchestrator/registry/pool_counts.h"

namespace skein::scheduler {

void PoolCounts::Add(const PoolCounts& more, int64_t times) {
  placeable += times * more.placeable;
  serving += times * more.serving;
  taking += times * more.taking;
  request_limit += times * more.request_limit;
  unlimited += times * more.unlimited;
  placed_not_serving += times * more.placed_not_serving;
  missed += times * more.missed;
  slow += times * more.slow;
  suspect += times * more.suspect;
  aside += times * more.aside;
}

void PoolLoad::Add(const PoolLoad& more, int64_t times) {
  instances += times * more.instances;
  running_requests += times * more.running_requests;
  queued_requests += times * more.queued_requests;
  total_blocks += times * more.total_blocks;
  held_blocks += times * more.held_blocks;
}

void PoolSums::Replace(const PoolPart& before, const PoolPart& now) {
  counts.Add(before.counts, -1);
  counts.Add(now.counts, 1);
  load.Add(before.load, -1);
  load.Add(now.load, 1);
  if (before.max_positions == now.max_positions) return;
  if (before.max_positions > 0) max_positions.erase(max_positions.find(before.max_positions));
  if (now.max_positions > 0) max_positions.insert(now.max_positions);
}

}  // namespace skein::scheduler
