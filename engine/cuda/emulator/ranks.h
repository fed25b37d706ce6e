// Runs the grids of several ranks at once, their blocks interleaved by a seed: what kernels that
// talk to other GPUs (simt_peer.h) are tested on. On one OS thread.
//
// A rank's grids run one after the other, as on a stream; what one did the next one of that rank
// sees. Blocks of a grid start in their order, at most `blocks_at_once` of them at a time. Some
// ranks get many more turns than others, and threads may lose their turn at each access to memory
// of peers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/cuda/emulator/grid.h"
#include "engine/cuda/emulator/peer_memory.h"

namespace skein::engine::simt {

struct WaitingGrid {
  GridShape shape;
  std::function<void()> thread;
};
using GridQueue = std::vector<WaitingGrid>;

// While one lives, the grids that this OS thread launches wait in a queue.
class QueueGrids {
 public:
  explicit QueueGrids(GridQueue* queue);
  ~QueueGrids();
  QueueGrids(const QueueGrids&) = delete;
  QueueGrids& operator=(const QueueGrids&) = delete;
};
GridQueue* ThisQueue();  // null: none

struct RankRunOptions {
  uint64_t seed = 0;
  int blocks_at_once = 1 << 20;  // of a rank
};

struct RankRunCounts {
  int64_t turns = 0;       // of blocks
  int64_t open_loads = 0;  // PeerMemory::open_loads
};

// Runs all grids of `queues`, one queue for each rank, and empties them. Kernels that wait for one
// that never comes must end by themselves (NowNs counts turns).
RankRunCounts RunRanks(std::span<GridQueue> queues, PeerMemory* memory,
                       const RankRunOptions& options);

}  // namespace skein::engine::simt
