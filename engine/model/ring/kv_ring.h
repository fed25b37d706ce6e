// The ring of one ring step: on a thread of its own, passes every rank's KV blocks (history and
// new) round, layer by layer and segment by segment, ahead of the attention that uses them.
//
// A segment of a layer takes N fills of buffers at each rank: fill 0 packs its own blocks, fill h
// receives, while the fill before it is sent on, the blocks of the rank h places before it. Fill
// numbers count through the whole step; buffer f % kBuffers holds fill f until its buffer is wanted
// again, which waits until attention is done with it.
//
// With windows (RingLayout) a segment's fills lie one behind the other, and attention waits for all
// of them; a window's buffers are filled again once attention is done with all of the last but one.
//
// In the last layer blocks pass only as far as to a rank that attends there, and nothing passes
// when none does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/ring/ring_layout.h"
#include "engine/model/ring/ring_progress.h"

namespace skein::engine {

struct RingOptions {
  Device* device = nullptr;
  std::span<void* const> layers;  // bases of the pool
  const KvSpec* kv = nullptr;
  std::byte* buffers = nullptr;  // kBuffers * segment_blocks blocks, of the device
  int64_t segment_blocks = 0;
  int64_t window_blocks = 0;       // > 0: of a window; buffers then hold 2 * window_blocks
  std::vector<bool> attends_last;  // by rank: whether it attends in the last layer
};

class KvRing {
 public:
  // One being received, one being sent, one attended to.
  static constexpr int kBuffers = 3;

  // `list`: this rank's blocks, as RingLayout orders them. All outlive this. Reaches kFilled
  // and kPassed; waits for kWritten, kMoved and kConsumed. REQUIRES: at least two ranks.
  KvRing(const RingStep& step, const RingLayout& layout, std::span<const int32_t> list,
         const RingOptions& options, RingProgress* progress);
  ~KvRing();  // waits for the thread, which ends with the step or its failure

  KvRing(const KvRing&) = delete;
  KvRing& operator=(const KvRing&) = delete;

  // Compute side. The fill in which the blocks of the rank `hop` places before arrive, and where.
  int64_t FillOf(int layer, int64_t segment, int hop) const;
  std::byte* BufferOf(int64_t fill) const;  // hop 0 with windows: where all its fills begin
  int RankBefore(int hop) const;
  // The number of fills in the whole step.
  int64_t fills() const { return FillOf(options_.kv->num_layers, 0, 0); }

 private:
  void Run();
  absl::Status PassLayer(int layer);
  absl::Status PassSegment(int layer, int64_t segment);
  bool AwaitBuffer(int64_t fill);
  bool Packs(int layer) const;
  bool Passes(int layer, int rank, int hop) const;
  size_t BytesOf(int layer, int64_t segment, int rank, int hop) const;

  const RingStep& step_;
  const RingLayout& layout_;
  const std::span<const int32_t> list_;
  const RingOptions options_;
  RingProgress* const progress_;
  const int rank_;
  std::thread thread_;
};

}  // namespace skein::engine
