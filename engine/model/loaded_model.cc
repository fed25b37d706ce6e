#include "engine/model/loaded_model.h"

#include <algorithm>
#include <utility>

#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_hash.h"
#include "engine/model/load/device_weights.h"

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
  if (options.num_blocks == 0 && options.kv_bytes == 0) {
    return bad("num_blocks", 0, "above 0 when kv_bytes is 0");
  }
  return absl::OkStatus();
}

// The pool's shape. INVALID_ARGUMENT when kv_bytes holds no block or num_blocks cannot be.
absl::StatusOr<KvSpec> MakeKvSpec(const ModelConfig& config, DType weights,
                                  const ModelEngineOptions& options) {
  KvSpec kv;
  kv.num_layers = config.num_layers;
  kv.kv_heads = config.num_kv_heads;
  kv.head_dim = config.head_dim;
  kv.block_tokens = options.block_tokens;
  kv.dtype = options.kv_dtype.value_or(weights);
  const int64_t bytes_a_block = kv.BlockBytes() * kv.num_layers;
  kv.num_blocks = options.num_blocks > 0 ? options.num_blocks : options.kv_bytes / bytes_a_block;
  if (kv.num_blocks == 0) {
    return absl::InvalidArgumentError("kv_bytes = " + std::to_string(options.kv_bytes) +
                                      ": one block takes " + std::to_string(bytes_a_block) +
                                      " bytes");
  }
  if (kv.num_blocks > INT32_MAX || kv.num_blocks > (int64_t{1} << 48) / bytes_a_block) {
    return absl::InvalidArgumentError("num_blocks = " + std::to_string(kv.num_blocks) +
                                      ": too many");
  }
  return kv;
}

// Weights and angles to where the device reads them.
absl::Status PlaceOnDevice(const LoadProgress& progress, LoadedModel* loaded) {
  Device* device = loaded->device.get();
  absl::StatusOr<DeviceWeights> uploaded = UploadWeights(loaded->weights, device, progress);
  if (!uploaded.ok()) return uploaded.status();
  loaded->weights = std::move(uploaded->weights);
  loaded->placed = std::move(uploaded->owned);
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
  return device->Synchronize();
}

}  // namespace

int64_t DefaultRingSegmentBytes(const Device& device, const KvSpec& kv) {
  constexpr int64_t kOfHost = 4 << 20, kOfDevice = 64 << 20;
  return std::min(device.IsHost() ? kOfHost : kOfDevice, kv.num_blocks * kv.BlockBytes());
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
                         TensorStore tensors_in, ModelConfig config_in, ModelWeights weights_in,
                         EngineSpec spec_in, RunState state_in, std::unique_ptr<RingRunner> ring_in,
                         int64_t tokens_max_in, int64_t positions)
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
      model{&config, &weights, &spec.kv, angles.table(), ops.get()} {
  for (void* base : state.kv) {
    regions.push_back({base, spec.kv.num_blocks * spec.kv.BlockBytes()});
  }
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const std::string& model_dir,
                                                       std::unique_ptr<Ops> ops,
                                                       std::unique_ptr<Device> device,
                                                       const ModelEngineOptions& options,
                                                       int layouts_tp) {
  const absl::Status checked = CheckOptions(options);
  if (!checked.ok()) return checked;
  const absl::StatusOr<std::string> text =
      ReadSmallFile(model_dir + "/config.json", kConfigBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*text, options.max_positions);
  if (!config.ok()) return config.status();
  absl::StatusOr<TensorStore> tensors =
      TensorStore::Open(model_dir, device->IsHost() ? MappedUse::kAgainAndAgain : MappedUse::kOnce);
  if (!tensors.ok()) return tensors.status();
  absl::StatusOr<ModelWeights> weights = BindWeights(*config, *tensors);
  if (!weights.ok()) return weights.status();
  if (!weights->slower_because.empty()) options.warn(weights->slower_because);
  const absl::StatusOr<KvSpec> kv = MakeKvSpec(*config, weights->common, options);
  if (!kv.ok()) return kv.status();

  EngineSpec spec;
  spec.model_hash = ModelHash(*text, *tensors);
  spec.device = options.device_name;
  spec.vocab_size = config->vocab_size;
  const auto positions = [&](KvLayout layout) {
    return std::min<int64_t>(config->max_positions, kv->num_blocks * TokensPerBlock(layout, *kv));
  };
  spec.max_positions = static_cast<int>(positions(KvLayout{}));
  spec.num_parameters = weights->num_parameters;
  spec.kv = *kv;
  // Rows whose logits are computed at a time: of any sequences, so they must not matter to each
  // other.
  const int64_t logit_rows =
      std::min<int64_t>(ops->KeySegment(kv->block_tokens) != 0
                            ? kSkinnyRowsMax
                            : ops->SkinnyRowsMax(weights->head_activation, weights->lm_head.dtype),
                        options.max_batch_tokens);
  absl::StatusOr<RunState> state =
      AllocateRunState(*config, weights->activation, weights->head_activation, *kv,
                       options.max_batch_tokens, logit_rows, device.get());
  if (!state.ok()) return state.status();
  const RingStepOptions ring_options = {
      .tokens_max = options.max_batch_tokens,
      .segment_bytes = options.ring_segment_bytes > 0 ? options.ring_segment_bytes
                                                      : DefaultRingSegmentBytes(*device, *kv),
      .model_hash = spec.model_hash,
      .key_segment = ops->KeySegment(kv->block_tokens)};
  absl::StatusOr<std::unique_ptr<RingRunner>> ring =
      RingRunner::Create(ring_options, *config, weights->activation, *kv, device.get());
  if (!ring.ok()) return ring.status();
  const int64_t rotated = positions(KvLayout{layouts_tp});
  auto loaded = std::make_unique<LoadedModel>(
      std::move(ops), std::move(device), *std::move(tensors), *std::move(config),
      *std::move(weights), std::move(spec), *std::move(state), *std::move(ring),
      options.max_batch_tokens, rotated);
  if (!loaded->device->IsHost()) {
    const absl::Status placed = PlaceOnDevice(options.progress, loaded.get());
    if (!placed.ok()) return placed;
  }
  if (options.make_token_sampler) {
    auto made = options.make_token_sampler(loaded->config.vocab_size);
    if (!made.ok()) return made.status();
    loaded->token_sampler = *std::move(made);
  }
  if (options.make_decode_runner) {
    const DecodeShape shape = {.kv = loaded->spec.kv,
                               .query_heads = loaded->config.num_heads,
                               .rows_max = options.max_batch_tokens,
                               .positions_max = loaded->spec.max_positions};
    auto made = options.make_decode_runner(shape, options.warn);
    if (!made.ok()) return made.status();
    loaded->decode_runner = *std::move(made);
  }
  return loaded;
}

}  // namespace skein::engine
