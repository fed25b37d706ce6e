#include "scheduler/orchestrator/registry/pool_counts.h"

namespace skein::scheduler {
namespace {

// 0 stands for no entry.
void ReplaceIn(std::multiset<int64_t>* all, int64_t before, int64_t now) {
  if (before == now) return;
  if (before > 0) all->erase(all->find(before));
  if (now > 0) all->insert(now);
}

}  // namespace

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

void PoolSpace::Add(const PoolSpace& more, int64_t times) {
  request_limit += times * more.request_limit;
  unlimited += times * more.unlimited;
  spare_blocks += times * more.spare_blocks;
  placed_elsewhere += times * more.placed_elsewhere;
}

void PoolSums::Replace(const PoolPart& before, const PoolPart& now) {
  counts.Add(before.counts, -1);
  counts.Add(now.counts, 1);
  load.Add(before.load, -1);
  load.Add(now.load, 1);
  space.Add(before.space, -1);
  space.Add(now.space, 1);
  ReplaceIn(&max_positions, before.max_positions, now.max_positions);
  ReplaceIn(&open_blocks, before.open_blocks, now.open_blocks);
}

}  // namespace skein::scheduler
