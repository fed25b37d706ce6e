// ModelEngine: a Hugging Face checkpoint run on a device through Ops.
//
// The residual stream and everything but the inputs of products is f32; logits are computed only
// for rows that are sampled or asked for. All buffers are sized once, from the options. The weights
// stay mapped where the checkpoint is when the device is the host; else they are copied to it, or
// to ModelEngineOptions::weights_device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/load/feed_forward_places.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/ops/decode_runner.h"
#include "engine/ops/ops.h"
#include "engine/sampling/token_sampler.h"

namespace skein::engine {

struct ModelEngineOptions {
  std::string device_name = "cpu";  // EngineSpec::device
  // KV pool: so many blocks, or when 0 as many as fit kv_bytes, or all that the device has room for
  // beside the weights and the buffers of steps (Device::MemoryInfo). One of them is required.
  int64_t num_blocks = 0;
  int64_t kv_bytes = 0;
  bool kv_fills_device = false;
  // Not null: the weights are copied into its memory, which the host can read, and the mapped
  // checkpoint is let go. With kv_fills_device it shares the budget of the engine's device.
  std::shared_ptr<Device> weights_device;
  int block_tokens = 16;
  std::optional<DType> kv_dtype;  // absent: the weights' dtype
  // Not null: not all layers' feed-forward weights are kept (layers/slot_weights.h). A step whose
  // weights could not be read ends with their reader's error, or DEADLINE_EXCEEDED; a ring step as
  // when a collective fails. The engine could run a next one. But an owner that follows engine.h
  // takes any error of a plain step, except INVALID_ARGUMENT, for the engine's end, as workers do.
  // Not for engines of a group.
  std::optional<SlotOptions> feed_forward;
  // Not null: the engine's owner can let it share its feed-forward weights with other ranks of its
  // node, and take them back, while it serves (sharing/weight_sharing.h). One engine has it. Not
  // with feed_forward.
  std::shared_ptr<WeightSharing> sharing;
  // Tokens of all sequences of one step together; Step refuses more (INVALID_ARGUMENT).
  int max_batch_tokens = 2048;
  // Ring steps pass KV round in segments of about so many bytes, three of which are held; the same
  // at all members. 0: as the device needs it, DefaultRingSegmentBytes.
  int64_t ring_segment_bytes = 0;
  // The largest RingStep::tp with which this engine shares the dense part with others, if the model
  // can be dealt to so many; the same at all members. With a larger one, and where weights are in
  // slots, a ring step runs as with 1. 1: no buffers for it are made (TensorBuffers).
  int ring_tp_max = 8;
  // > 0 lowers EngineSpec::max_positions, which is otherwise the checkpoint's. In any case it is no
  // more than the KV pool holds.
  int max_positions = 0;
  // Called while weights are copied to a device: the bytes copied so far, and all bytes.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  // Makes the sampler on the device. Without one logits are copied to the host.
  MakeTokenSampler make_token_sampler;
  // Makes the runner of steps with one token for each sequence. Without one they run as any other.
  MakeDecodeRunner make_decode_runner;
  // Called with a text when something runs more slowly than it could; the text says why.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

// A GPU computes a segment's attention sooner, and pays for each in launches, handshakes and a
// merge of all rows, so its segments are larger. The same for all pools, since members of a ring,
// whose devices are of a kind, need the same.
int64_t DefaultRingSegmentBytes(const Device& device);

// Batch invariance: what a step computes for a sequence, logits and KV, is the same
// bits whatever other sequences are in the step and in whatever order. It does depend on how the
// sequence itself is cut into steps: a slice of more than Ops::SkinnyRowsMax tokens, a shorter one
// and a single token sum their products or their attention in different orders. So a prompt
// prefilled whole and one continued from cached blocks differ by rounding, and so do its last
// logits with and without next_tokens. Slices of more than SkinnyRowsMax tokens also depend on the
// number of threads. With Ops that are reproducible (Ops::KeySegment) nothing of this matters: a
// token's logits and KV are the same bits in any cut, ring or group.
//
// NOT_FOUND, INVALID_ARGUMENT (checkpoint or options, field and value named) or RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<Engine>> MakeModelEngine(const std::string& model_dir,
                                                        std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<Device> device,
                                                        const ModelEngineOptions& options);

}  // namespace skein::engine
