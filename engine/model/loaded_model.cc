#include "engine/model/loaded_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_hash.h"
#include "engine/model/kv_pool_size.h"
#include "engine/model/layers/slot_weights.h"
#include "engine/model/load/device_weights.h"
#include "engine/model/load/feed_forward_reader.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

absl::Status CheckOptions(const ModelEngineOptions& options) {
  const auto bad = [](const char* option, int64_t value, const char* range) {
    return absl::InvalidArgumentError(std::string(option) + " = " + std::to_string(value) +
                                      ": must be " + range);
  };
  if (options.block_tokens < 1 || options.block_tokens > 4096) {
    return bad("block_tokens", options.block_tokens, "from 1 to 4096");
  }
  if (options.max_batch_tokens < 1 || options.max_batch_tokens > 1 << 20) {
    return bad("max_batch_tokens", options.max_batch_tokens, "from 1 to 1048576");
  }
  if (options.num_blocks < 0) return bad("num_blocks", options.num_blocks, "at least 0");
  if (options.kv_bytes < 0) return bad("kv_bytes", options.kv_bytes, "at least 0");
  if (options.ring_segment_bytes < 0) {
    return bad("ring_segment_bytes", options.ring_segment_bytes, "at least 0");
  }
  if (options.max_positions < 0) return bad("max_positions", options.max_positions, "at least 0");
  const bool asked = options.num_blocks > 0 || options.kv_bytes > 0;
  if (!asked && !options.kv_fills_device) {
    return bad("num_blocks", 0, "above 0 when kv_bytes is 0");
  }
  if (options.sharing != nullptr && options.feed_forward.has_value()) {
    return absl::InvalidArgumentError("sharing: not with feed_forward");
  }
  if (asked && options.kv_fills_device) {
    return absl::InvalidArgumentError("kv_fills_device: not with num_blocks or kv_bytes");
  }
  return absl::OkStatus();
}

// Of the rotary angles, where they are copied to a device: cosines and sines.
int64_t AnglesBytes(int64_t positions, int head_dim) {
  const auto bytes = static_cast<size_t>(positions * (head_dim / 2)) * sizeof(float);
  return static_cast<int64_t>(2 * DeviceBytes(bytes));
}

// Where the weights are copied to; null: they are read where the checkpoint is mapped.
Device* PlacedOn(const ModelEngineOptions& options, Device* device) {
  if (options.weights_device != nullptr) return options.weights_device.get();
  return device->IsHost() ? nullptr : device;
}

// Weights and angles to where the device reads them.
absl::Status PlaceOnDevice(const LoadProgress& progress, Device* device, LoadedModel* loaded) {
  absl::StatusOr<DeviceWeights> uploaded = UploadWeights(loaded->weights, device, progress);
  if (!uploaded.ok()) return uploaded.status();
  loaded->weights = std::move(uploaded->weights);
  loaded->placed = std::move(uploaded->owned);
  loaded->placed_feed_forward = std::move(uploaded->feed_forward);
  RopeTable& rope = loaded->model.rope;
  const size_t bytes =
      static_cast<size_t>(rope.max_positions * (rope.head_dim / 2)) * sizeof(float);
  for (const float** angles : {&rope.cos, &rope.sin}) {
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(device, bytes);
    if (!buffer.ok()) return buffer.status();
    const absl::Status copied =
        device->Copy(buffer->data(), *angles, bytes, CopyKind::kHostToDevice);
    if (!copied.ok()) return copied;
    *angles = static_cast<const float*>(buffer->data());
    loaded->placed.push_back(*std::move(buffer));
  }
  const absl::Status arrived = device->Synchronize();
  if (!arrived.ok()) return arrived;
  loaded->angles.Drop();
  loaded->tensors.reset();
  return absl::OkStatus();
}

}  // namespace

int64_t DefaultRingSegmentBytes(const Device& device) {
  return device.IsHost() ? 4 << 20 : 64 << 20;
}

absl::StatusOr<ConstMatrix> LoadedModel::OnHost(const ConstMatrix& logits) {
  if (device->IsHost() || logits.rows == 0) return logits;
  host_logits_.resize(static_cast<size_t>((logits.rows - 1) * logits.stride + logits.cols));
  absl::Status status = device->Copy(host_logits_.data(), logits.data,
                                     host_logits_.size() * sizeof(float), CopyKind::kDeviceToHost);
  if (status.ok()) status = device->Synchronize();
  if (!status.ok()) return status;
  return ConstMatrix{host_logits_.data(), DType::kF32, logits.rows, logits.cols, logits.stride};
}

LoadedModel::LoadedModel(std::unique_ptr<Ops> ops_in, std::unique_ptr<Device> device_in,
                         std::shared_ptr<const TensorStore> tensors_in, ModelConfig config_in,
                         ModelWeights weights_in, EngineSpec spec_in, RunState state_in,
                         std::unique_ptr<RingRunner> ring_in, int64_t tokens_max_in,
                         int64_t positions)
    : ops(std::move(ops_in)),
      device(std::move(device_in)),
      tensors(std::move(tensors_in)),
      config(std::move(config_in)),
      weights(std::move(weights_in)),
      spec(std::move(spec_in)),
      tokens_max(tokens_max_in),
      angles(config.rope, config.head_dim, positions),
      state(std::move(state_in)),
      ring(std::move(ring_in)),
      slices(&weights, &config),
      model{&config, &weights, &spec.kv, angles.table(), ops.get()} {
  for (void* base : state.kv) {
    regions.push_back({base, spec.kv.num_blocks * spec.kv.BlockBytes()});
  }
}

LoadedModel::~LoadedModel() {
  if (sharing != nullptr) sharing->Unbind();
}

namespace {

// The steps of LoadModel, in their order.
class Loader {
 public:
  Loader(std::unique_ptr<Ops> ops, std::unique_ptr<Device> device,
         const ModelEngineOptions& options, int group_ranks_max)
      : options_(options),
        group_ranks_max_(group_ranks_max),
        ops_(std::move(ops)),
        device_(std::move(device)),
        placed_on_(PlacedOn(options, device_.get())) {}

  // Configuration and weights, as views of the mapped files.
  absl::Status Open(const std::string& model_dir) {
    const absl::StatusOr<std::string> text =
        ReadSmallFile(model_dir + "/config.json", kConfigBytesMax);
    if (!text.ok()) return text.status();
    absl::StatusOr<ModelConfig> config = ParseModelConfig(*text, options_.max_positions);
    if (!config.ok()) return config.status();
    config_ = *std::move(config);
    absl::StatusOr<TensorStore> tensors = TensorStore::Open(
        model_dir, placed_on_ == nullptr ? MappedUse::kAgainAndAgain : MappedUse::kOnce);
    if (!tensors.ok()) return tensors.status();
    tensors_ = std::make_shared<const TensorStore>(*std::move(tensors));
    model_dir_ = model_dir;
    absl::StatusOr<ModelWeights> weights = BindWeights(config_, *tensors_);
    if (!weights.ok()) return weights.status();
    weights_ = *std::move(weights);
    if (!weights_.slower_because.empty()) options_.warn(weights_.slower_because);
    spec_.model_hash = ModelHash(*text, *tensors_);
    return options_.feed_forward.has_value() ? PlaceFeedForward() : absl::OkStatus();
  }

  // The buffers of steps, and the KV pool.
  absl::Status AllocateBuffers() {
    spec_.kv = KvShapeOf(config_, weights_.common, options_);
    if (options_.kv_fills_device) return FillWithKv();
    const absl::StatusOr<int64_t> blocks = BlocksAskedFor(spec_.kv, options_);
    if (!blocks.ok()) return blocks.status();
    spec_.kv.num_blocks = *blocks;
    const absl::Status allocated = AllocateStepBuffers();
    return allocated.ok() ? AllocatePool() : allocated;
  }

  absl::StatusOr<std::unique_ptr<LoadedModel>> Finish() {
    spec_.device = options_.device_name;
    spec_.vocab_size = config_.vocab_size;
    spec_.max_positions = static_cast<int>(Positions(KvLayout{}));
    spec_.num_parameters = weights_.num_parameters;
    const int64_t rotated = Positions(KvLayout{group_ranks_max_});
    auto loaded = std::make_unique<LoadedModel>(
        std::move(ops_), std::move(device_), std::move(tensors_), std::move(config_),
        std::move(weights_), std::move(spec_), std::move(state_), std::move(ring_),
        options_.max_batch_tokens, rotated);
    loaded->weights_device = options_.weights_device;
    loaded->group_buffers = std::move(group_buffers_);
    loaded->extra_kv = std::move(extra_kv_);
    if (placed_on_ != nullptr) {
      const absl::Status placed = PlaceOnDevice(options_.progress, placed_on_, loaded.get());
      if (!placed.ok()) return placed;
    }
    absl::Status made = MakeSource(loaded.get());
    loaded->ring_limits = ring_limits_;
    if (ring_tp_max_ > 1) loaded->slices.Make(ring_tp_max_);
    if (made.ok()) made = MakeDeviceParts(loaded.get());
    if (!made.ok()) return made;
    if (options_.sharing != nullptr) BindSharing(loaded.get());
    return loaded;
  }

 private:
  int64_t Positions(KvLayout layout) const {
    return std::min<int64_t>(config_.max_positions,
                             spec_.own_blocks() * TokensPerBlock(layout, spec_.kv));
  }

  // Takes the layers' feed-forward weights that are not kept here out of the model's.
  absl::Status PlaceFeedForward() {
    const SlotOptions& slots = *options_.feed_forward;
    if (slots.places.size() != weights_.layers.size() || slots.slots < 1) {
      return absl::InvalidArgumentError(
          "feed_forward: " + std::to_string(slots.places.size()) + " places and " +
          std::to_string(slots.slots) + " slots; must be a place for each of " +
          std::to_string(weights_.layers.size()) + " layers, and 1 slot or more");
    }
    for (size_t i = 0; i < slots.places.size(); ++i) {
      FeedForwardWeights& layer = weights_.layers[i].feed_forward;
      feed_forward_.push_back(layer);
      if (slots.places[i] != FeedForwardPlace::kHere) layer = {};
    }
    reader_ = std::make_unique<CheckpointReader>(tensors_, feed_forward_);
    if (slots.make_reader) reader_ = slots.make_reader(std::move(reader_));
    return absl::OkStatus();
  }

  absl::Status MakeSource(LoadedModel* loaded) {
    if (!options_.feed_forward.has_value()) {
      loaded->source = std::make_unique<WholeWeights>(&loaded->weights);
    } else {
      auto made = SlotWeights::Create(&loaded->weights, feed_forward_, *options_.feed_forward,
                                      std::move(reader_),
                                      placed_on_ != nullptr ? placed_on_ : loaded->device.get());
      if (!made.ok()) return made.status();
      loaded->source = *std::move(made);
    }
    loaded->model.source = loaded->source.get();
    return absl::OkStatus();
  }

  void BindSharing(LoadedModel* loaded) {
    loaded->sharing = options_.sharing;
    loaded->sharing->Bind({.config = &loaded->config,
                           .model = &loaded->model,
                           .weights = &loaded->weights,
                           .feed_forward = &loaded->placed_feed_forward,
                           .source = &loaded->source,
                           .slices = &loaded->slices,
                           .extra_kv = loaded->extra_kv.get(),
                           .device = placed_on_,
                           .model_dir = model_dir_,
                           .model_hash = loaded->spec.model_hash});
  }

  // The largest RingStep::tp with which ring steps share the dense part.
  int RingTpMax() const {
    // Weights that are read into slots come whole.
    if (options_.feed_forward.has_value() || options_.sharing != nullptr) return 1;
    const int most = static_cast<int>(
        std::min<int64_t>({options_.ring_tp_max, kRingTpMax, options_.max_batch_tokens}));
    int tp = 1;
    while (2 * tp <= most && MakeShardLayout(ShapeOf(config_), {1, 2 * tp}, 0).ok()) tp *= 2;
    return tp;
  }

  // The pool gets what is left behind everything else.
  absl::Status FillWithKv() {
    const int64_t placed = placed_on_ == nullptr ? 0 : PlacedBytes(weights_);
    const absl::StatusOr<KvRest> rest = KvRest::Make(spec_.kv, placed, device_.get());
    if (!rest.ok()) return rest.status();
    absl::StatusOr<int64_t> blocks = rest->BlocksMax();
    if (!blocks.ok()) return blocks.status();
    spec_.kv.num_blocks = *blocks;
    const absl::Status allocated = AllocateStepBuffers();
    if (!allocated.ok()) return rest->About(allocated);
    const int64_t angles =
        placed_on_ == nullptr
            ? 0
            : AnglesBytes(Positions(KvLayout{group_ranks_max_}), config_.head_dim);
    const int64_t slots =
        options_.feed_forward.has_value() ? SlotBytes(*options_.feed_forward, feed_forward_) : 0;
    blocks = rest->Blocks(angles + slots + RoomForSharing());
    if (!blocks.ok()) return blocks.status();
    spec_.kv.num_blocks = *blocks;
    return AllocatePool();
  }

  // With addresses for the blocks that come when weights are shared.
  absl::Status AllocatePool() {
    if (options_.sharing != nullptr) {
      spec_.extra_blocks = options_.sharing->ExtraBlocksFor(FeedForwardShapes(), config_,
                                                            weights_.activation, spec_.kv);
    }
    if (spec_.extra_blocks == 0) return AllocateKv(spec_.kv, device_.get(), &state_);
    const SharingOptions& sharing = options_.sharing->options();
    spec_.kv.num_blocks += spec_.extra_blocks;
    absl::Status allocated = AllocateKv(spec_.kv, sharing.kv_device, &state_);
    if (!allocated.ok()) return allocated;
    auto extra = ExtraKv::Make({.kv = spec_.kv,
                                .extra_blocks = spec_.extra_blocks,
                                .layers = state_.kv,
                                .device = sharing.kv_device,
                                .budget = sharing.budget});
    if (!extra.ok()) return extra.status();
    extra_kv_ = *std::move(extra);
    return absl::OkStatus();
  }

  std::vector<FeedForwardWeights> FeedForwardShapes() const {
    std::vector<FeedForwardWeights> layers;
    layers.reserve(weights_.layers.size());
    for (const LayerWeights& layer : weights_.layers) layers.push_back(layer.feed_forward);
    return layers;
  }

  int64_t RoomForSharing() const {
    if (options_.sharing == nullptr) return 0;
    return options_.sharing->RoomFor(FeedForwardShapes(), config_, weights_.activation);
  }

  absl::Status AllocateStepBuffers() {
    const int64_t key_segment = ops_->KeySegment(spec_.kv.block_tokens);
    // Rows whose logits are computed at a time: of any sequences, so they must not matter to each
    // other.
    const int64_t logit_rows = std::min<int64_t>(
        key_segment != 0 ? kSkinnyRowsMax
                         : ops_->SkinnyRowsMax(weights_.head_activation, weights_.lm_head.dtype),
        options_.max_batch_tokens);
    absl::StatusOr<RunState> state =
        AllocateRunState(config_, weights_.activation, weights_.head_activation,
                         options_.max_batch_tokens, logit_rows, device_.get());
    if (!state.ok()) return state.status();
    state_ = *std::move(state);
    if (group_ranks_max_ > 1) {
      absl::StatusOr<GroupBuffers> buffers =
          AllocateGroupBuffers(config_, weights_.activation, options_.max_batch_tokens, logit_rows,
                               group_ranks_max_, device_.get());
      if (!buffers.ok()) return buffers.status();
      group_buffers_ = *std::move(buffers);
    }
    ring_limits_ = {.tokens_max = options_.max_batch_tokens, .named_histories = key_segment != 0};
    ring_tp_max_ = RingTpMax();
    const RingStepOptions ring_options = {.tokens_max = options_.max_batch_tokens,
                                          .segment_bytes = options_.ring_segment_bytes > 0
                                                               ? options_.ring_segment_bytes
                                                               : DefaultRingSegmentBytes(*device_),
                                          .key_segment = key_segment,
                                          .tp_max = ring_tp_max_};
    absl::StatusOr<std::unique_ptr<RingRunner>> ring =
        RingRunner::Create(ring_options, config_, weights_.activation, spec_, device_.get());
    if (!ring.ok()) return ring.status();
    ring_ = *std::move(ring);
    return absl::OkStatus();
  }

  absl::Status MakeDeviceParts(LoadedModel* loaded) const {
    if (options_.make_token_sampler) {
      auto made = options_.make_token_sampler(loaded->config.vocab_size);
      if (!made.ok()) return made.status();
      loaded->token_sampler = *std::move(made);
    }
    // Its graphs would hold the copies into slots, too.
    if (options_.make_decode_runner && !options_.feed_forward.has_value() &&
        options_.sharing == nullptr) {
      const DecodeShape shape = {.kv = loaded->spec.kv,
                                 .query_heads = loaded->config.num_heads,
                                 .rows_max = options_.max_batch_tokens,
                                 .positions_max = loaded->spec.max_positions};
      auto made = options_.make_decode_runner(shape, options_.warn);
      if (!made.ok()) return made.status();
      loaded->decode_runner = *std::move(made);
    }
    return absl::OkStatus();
  }

  const ModelEngineOptions& options_;
  const int group_ranks_max_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;
  Device* const placed_on_;
  ModelConfig config_;
  std::string model_dir_;
  std::shared_ptr<const TensorStore> tensors_;
  ModelWeights weights_;
  std::vector<FeedForwardWeights> feed_forward_;  // of all layers, where not all are kept
  std::unique_ptr<FeedForwardReader> reader_;
  EngineSpec spec_;
  RunState state_;
  std::unique_ptr<ExtraKv> extra_kv_;
  std::optional<GroupBuffers> group_buffers_;
  std::unique_ptr<RingRunner> ring_;
  RingLimits ring_limits_;
  int ring_tp_max_ = 1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const std::string& model_dir,
                                                       std::unique_ptr<Ops> ops,
                                                       std::unique_ptr<Device> device,
                                                       const ModelEngineOptions& options,
                                                       int group_ranks_max) {
  const absl::Status checked = CheckOptions(options);
  if (!checked.ok()) return checked;
  Loader loader(std::move(ops), std::move(device), options, group_ranks_max);
  absl::Status status = loader.Open(model_dir);
  if (status.ok()) status = loader.AllocateBuffers();
  if (!status.ok()) return status;
  return loader.Finish();
}

}  // namespace skein::engine
