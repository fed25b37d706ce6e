// A checkpoint on a device with everything that a step on it needs. Internal to engine/model: the
// ways to run a model (alone, in a group) share one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/fair_mutex.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/group/group_buffers.h"
#include "engine/model/layers/sliced_weights.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/load/rope_table.h"
#include "engine/model/load/weights.h"
#include "engine/model/model_engine.h"
#include "engine/model/ring/ring_check.h"
#include "engine/model/ring/ring_step.h"
#include "engine/model/sharing/extra_kv.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Stays where LoadModel made it: `model` points into it. Used by one thread at a time.
struct LoadedModel {
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  ~LoadedModel();
  LoadedModel(std::unique_ptr<Ops> ops, std::unique_ptr<Device> device,
              std::shared_ptr<const TensorStore> tensors, ModelConfig config, ModelWeights weights,
              EngineSpec spec, RunState state, std::unique_ptr<RingRunner> ring, int64_t tokens_max,
              int64_t positions);

  std::unique_ptr<Ops> ops;
  std::unique_ptr<Device> device;              // outlives `state`
  std::shared_ptr<Device> weights_device;      // ModelEngineOptions::weights_device
  std::shared_ptr<const TensorStore> tensors;  // what `weights` are views of, or null
  // Where `tensors` is null: what `weights` and `model.rope` are views of.
  std::vector<DeviceBuffer> placed;
  std::vector<DeviceBuffer> placed_feed_forward;  // of each layer
  std::unique_ptr<TokenSampler> token_sampler;    // null: on the host
  std::unique_ptr<DecodeRunner> decode_runner;    // null: decode steps run as all others
  ModelConfig config;
  ModelWeights weights;
  EngineSpec spec;
  int64_t tokens_max = 0;  // of a step
  RopeAngles angles;
  RunState state;
  std::optional<GroupBuffers> group_buffers;  // if it runs steps of groups
  std::unique_ptr<ExtraKv> extra_kv;          // null: all blocks of the pool stay
  std::unique_ptr<RingRunner> ring;           // runs steps that span instances
  std::unique_ptr<WeightSource> source;
  WeightSlices slices;                     // of `weights`
  std::shared_ptr<WeightSharing> sharing;  // ModelEngineOptions::sharing
  RingLimits ring_limits;
  std::vector<KvRegion> regions;
  Model model;

  // Held during each step: orders to share come between steps.
  std::unique_lock<FairMutex> DuringStep() {
    return sharing == nullptr ? std::unique_lock<FairMutex>() : sharing->DuringStep();
  }

  // `logits` of the device as the host can read them, until the next call. The device's errors.
  absl::StatusOr<ConstMatrix> OnHost(const ConstMatrix& logits);

 private:
  std::vector<float> host_logits_;
};

// `group_ranks_max`: of the largest group with which it will run steps; 1: none. There are buffers
// for it, and positions reach as far as the pool does in the layout of so many ranks
// (LoadedModel::angles), EngineSpec::max_positions being that of tp = 1. Errors as MakeModelEngine.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const std::string& model_dir,
                                                       std::unique_ptr<Ops> ops,
                                                       std::unique_ptr<Device> device,
                                                       const ModelEngineOptions& options,
                                                       int group_ranks_max = 1);

// The engine that runs `model` alone.
std::unique_ptr<Engine> MakeModelEngine(std::shared_ptr<LoadedModel> model);

}  // namespace skein::engine
