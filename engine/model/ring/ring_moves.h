// Cache balancing of one ring step (Tetris, section 4.1 and figure 6b): on a thread of its own
// and a group of its own, moves each layer's blocks as RingStep::send and receive say. Layer 0
// moves at once; layer l + 1 as soon as layer l's ring has passed everything, so that it runs while
// layer l's last attention and dense part compute and never beside the ring that it would slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/ring/ring_progress.h"

namespace skein::engine {

class KvMover {
 public:
  // All outlive this. `staging` grows to hold what moves at a time, about `piece_bytes` each way.
  // Reaches kMoved; waits for kPassed.
  KvMover(const RingStep& step, Device* device, std::span<void* const> layers, const KvSpec* kv,
          int64_t piece_bytes, DeviceBuffer* staging, RingProgress* progress);
  ~KvMover();  // waits for the thread, which ends with the step or its failure

  KvMover(const KvMover&) = delete;
  KvMover& operator=(const KvMover&) = delete;

 private:
  using Lists = std::vector<std::vector<BlockId>>;

  void Run();
  absl::Status Prepare();
  absl::Status MoveLayer(int layer);
  absl::Status MovePieces(int layer, int64_t round);
  std::span<const int32_t> PieceOf(const Lists& lists, int rank, int64_t round) const;

  const RingStep& step_;
  Device* const device_;
  const std::span<void* const> layers_;
  const KvSpec* const kv_;
  DeviceBuffer* const staging_;
  RingProgress* const progress_;
  const int64_t piece_bytes_;
  const int ranks_;
  const int64_t piece_blocks_;  // of one pair at a time
  const int64_t rounds_;        // of a layer, the same on all ranks
  std::thread thread_;
};

}  // namespace skein::engine
