// Runs ring steps (engine.h) on a model: the layers of layer_loop.h with ring attention. The last
// layer attends only for rows that need logits.
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
#include "engine/model/ring/ring_attention.h"
#include "engine/model/ring/ring_layout.h"
#include "engine/model/ring/ring_progress.h"
#include "engine/model/ring/tensor_rows.h"

namespace skein::engine {

struct RingStepOptions {
  int64_t tokens_max = 0;     // of one step
  int64_t segment_bytes = 0;  // of a ring buffer, about; the same on all ranks
  int64_t key_segment = 0;    // Ops::KeySegment; > 0: the ring passes windows of so many positions
  int tp_max = 1;             // steps of a larger tp run as with 1; 1: without TensorBuffers
};

class RingRunner {
 public:
  // `device` outlives this. RESOURCE_EXHAUSTED when it has not the memory.
  static absl::StatusOr<std::unique_ptr<RingRunner>> Create(const RingStepOptions& options,
                                                            const ModelConfig& config,
                                                            DType activation,
                                                            const EngineSpec& spec, Device* device);

  // Whether the ranks share the dense part. All that have the same model, and the same options, say
  // the same.
  bool Shares(const RingStep& step) const { return step.tp > 1 && step.tp <= options_.tp_max; }

  // First, of every step that this rank does not refuse: tags its messages with the digest of what
  // all ranks must have been given alike.
  void Agree(const SequenceStep& sequence);

  // Sets what differs from a plain batch of the same tokens: their positions, and where their KV
  // lies. `batch` points into this until the next Place. REQUIRES: CheckRingStep passed.
  void Place(const SequenceStep& sequence, Batch* batch);

  // As RunLayers, for the batch of Place. `slices`: where Shares(step), this rank's of the weights.
  // REQUIRES: Agree and Place. UNAVAILABLE or DEADLINE_EXCEEDED when a collective failed, or the
  // weights of a layer could not be read; INVALID_ARGUMENT when this rank found that the ranks
  // disagree about the step. Its communicators are then broken.
  absl::Status Run(const Model& model, WeightSource* slices, const RingStep& step,
                   const Batch& batch, const std::function<void(int)>& layer_queued,
                   RunState& state);

 private:
  RingRunner(const RingStepOptions& options, const EngineSpec& spec, Device* device);

  absl::Status AllocateBuffers(const ModelConfig& config, DType activation);
  // By rank of the tensor group, how many rows need logits; all ranks of the step meet for it.
  absl::StatusOr<std::vector<int64_t>> TellLogitRows(const RingStep& step, int64_t own);
  // `tensor` is null where no dense part is shared.
  static absl::Status RunParts(const Model& model, WeightSource* slices,
                               const std::function<void(int)>& layer_queued,
                               RingAttention& attention, TensorRows* tensor, RunState& state);

  RingStepOptions options_;
  EngineSpec spec_;
  Device* device_;
  RingBuffers buffers_;
  std::vector<int32_t> list_;  // block ids: history, then spans
  // [KvRing::kBuffers][segment.num_blocks] blocks or two windows, whichever are more.
  std::byte* ring_ = nullptr;
  DeviceBuffer staging_;  // of KvMover
  TensorBuffers tensor_;
  int64_t* counts_ = nullptr;         // of TellLogitRows, by rank, on the device
  std::vector<int64_t> told_counts_;  // the same at the host
  std::vector<DeviceBuffer> owned_;
};

}  // namespace skein::engine
