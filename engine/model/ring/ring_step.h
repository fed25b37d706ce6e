// Runs ring steps (engine.h) on a model: the layers of forward.h with ring attention between
// them.
//
// A rank's own history and spans, put end to end, are in the prompt's order, so that attention over
// them is one causal call over one block table. What other ranks hold arrives through KvRing and is
// merged by log-sum-exp in the order (segment, distance in the ring), never in that of arrival:
// results repeat bit by bit. The last layer attends only for rows that need logits; a rank without
// rows still serves the ring to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/ring/kv_ring.h"
#include "engine/model/ring/ring_layout.h"
#include "engine/model/ring/ring_progress.h"

namespace skein::engine {

struct RingStepOptions {
  int64_t tokens_max = 0;     // of one step
  int64_t segment_bytes = 0;  // of a ring buffer, about
  std::string model_hash;     // EngineSpec::model_hash; the same on all ranks
};

class RingRunner {
 public:
  // `device` outlives this. RESOURCE_EXHAUSTED when it has not the memory.
  static absl::StatusOr<std::unique_ptr<RingRunner>> Create(const RingStepOptions& options,
                                                            const ModelConfig& config,
                                                            DType activation, const KvSpec& kv,
                                                            Device* device);

  // First, of every step. The ranks tell each other whether they refuse it (`verdict`, which is not
  // OK at any afterwards if it was not OK at one; nobody runs the step then), what must be equal at
  // all, how large a segment may be, and whether they attend in the last layer. Errors are Run's.
  absl::Status Meet(const RingStep& step, bool attends_last, absl::Status* verdict);

  // Sets what differs from a plain batch of the same tokens: their positions, and where their KV
  // lies. `batch` points into this until the next Place. REQUIRES: CheckRingStep passed.
  void Place(const SequenceStep& sequence, Batch* batch);

  // As RunLayers, for the batch of Place. REQUIRES: Meet's verdict was OK. UNAVAILABLE or
  // DEADLINE_EXCEEDED when a collective failed, INVALID_ARGUMENT when ranks disagree about the
  // step; its communicators are then broken.
  absl::Status Run(const Model& model, const RingStep& step, const Batch& batch,
                   const std::function<void(int)>& layer_done, RunState& state);

 private:
  // The inputs of a step's attention.
  struct Step {
    const Model& model;
    const RingLayout& layout;
    const KvRing* ring;  // null when alone
    RingProgress& progress;
    RunState& state;
  };

  RingRunner(const RingStepOptions& options, const KvSpec& kv, Device* device);

  absl::Status RunRingLayers(const Step& step, const Batch& batch,
                             const std::function<void(int)>& layer_done);
  absl::Status Attend(const Step& step, const Batch& rows, int layer);
  void AttendOwn(const Step& step, const Batch& rows, int layer);
  void AttendArrived(const Step& step, const Batch& rows, int rank, int64_t segment,
                     std::byte* buffer);
  Matrix Merged(const Step& step) const;
  absl::Status TakeWords(const RingStep& step, std::span<const uint64_t> words,
                         absl::Status* verdict);

  RingStepOptions options_;
  Device* device_;
  KvSpec segment_;                  // the pool's shape with the blocks of one ring buffer
  std::vector<bool> attends_last_;  // by rank, as they said in Meet
  int64_t step_blocks_ = 0;         // of the step's segments: as many as all ranks' buffers hold
  std::vector<int32_t> list_;       // block ids: history, then spans
  std::vector<int32_t> count_;      // 0, 1, 2, …
  Matrix merged_;                   // f32 [T, Q]  empty when the activations are f32: then in place
  Matrix partial_;                  // f32 [T, Q]
  Matrix merged_lse_;               // f32 [T, heads]
  Matrix partial_lse_;              // f32 [T, heads]
  std::byte* ring_ = nullptr;       // [KvRing::kBuffers][segment_.num_blocks] blocks
  DeviceBuffer staging_;            // of KvMover
  std::vector<DeviceBuffer> owned_;
};

}  // namespace skein::engine
