#include "engine/model/model_engine.h"

#include <algorithm>
#include <utility>

#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/model_hash.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/model/forward.h"
#include "engine/model/rope_table.h"
#include "engine/model/run_state.h"
#include "engine/model/step_check.h"
#include "engine/model/weights.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"

namespace skein::engine {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;
// Rows whose logits are computed at a time: of any sequences, so they must not matter to each other.
constexpr int64_t kLogitRows = kFewRowsMax;

// Why a row's logits are wanted.
struct LogitUse {
  size_t sequence = 0;
  size_t token = 0;  // index in the sequence's tokens
};

class ModelEngine final : public Engine {
 public:
  ModelEngine(std::unique_ptr<Ops> ops, std::unique_ptr<Device> device, TensorStore tensors,
              ModelConfig config, ModelWeights weights, EngineSpec spec, RunState state,
              int64_t tokens_max)
      : ops_(std::move(ops)),
        device_(std::move(device)),
        tensors_(std::move(tensors)),
        config_(std::move(config)),
        weights_(std::move(weights)),
        spec_(std::move(spec)),
        tokens_max_(tokens_max),
        angles_(config_.rope, config_.head_dim, spec_.max_positions),
        state_(std::move(state)),
        sampler_(config_.vocab_size),
        model_{&config_, &weights_, &spec_.kv, angles_.table(), ops_.get()} {
    for (void* base : state_.kv) {
      regions_.push_back({base, spec_.kv.num_blocks * spec_.kv.BlockBytes()});
    }
  }

  const EngineSpec& Spec() const override { return spec_; }
  std::span<const KvRegion> KvRegions() const override { return regions_; }

  absl::Status Step(std::span<const SequenceStep> sequences,
                    const std::function<void(int layer)>& layer_done,
                    std::vector<SequenceResult>* results) override {
    const absl::Status checked = CheckStep(sequences, spec_, tokens_max_);
    if (!checked.ok()) return checked;
    FillBatch(sequences);
    RunLayers(model_, batch_, layer_done, state_);
    results->clear();
    results->resize(sequences.size());
    return Finish(sequences, *results);
  }

 private:
  void FillBatch(std::span<const SequenceStep> sequences);
  absl::Status Finish(std::span<const SequenceStep> sequences,
                      std::vector<SequenceResult>& results);
  absl::Status Use(const SequenceStep& sequence, size_t token, std::span<const float> logits,
                   SequenceResult& result);

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;  // outlives state_
  TensorStore tensors_;             // outlives weights_
  ModelConfig config_;
  ModelWeights weights_;
  EngineSpec spec_;
  int64_t tokens_max_;
  RopeAngles angles_;
  RunState state_;
  Sampler sampler_;
  Model model_;
  std::vector<KvRegion> regions_;
  Batch batch_;                       // of the current step
  std::vector<LogitUse> logit_uses_;  // of each of batch_.logit_rows
};

bool WantsLogits(const SequenceStep& sequence, size_t token) {
  const bool last = token + 1 == sequence.tokens.size();
  return (last && (sequence.sample || sequence.want_logits)) ||
         (!sequence.next_tokens.empty() && sequence.next_tokens[token] >= 0);
}

void ModelEngine::FillBatch(std::span<const SequenceStep> sequences) {
  batch_.ids.clear();
  batch_.positions.clear();
  batch_.sequences.clear();
  batch_.logit_rows.clear();
  logit_uses_.clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceStep& sequence = sequences[s];
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    batch_.sequences.push_back(
        {batch_.tokens(), count, sequence.position, sequence.block_table, sequence.layout});
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      if (WantsLogits(sequence, t)) {
        batch_.logit_rows.push_back(static_cast<int32_t>(batch_.tokens()));
        logit_uses_.push_back({s, t});
      }
      batch_.ids.push_back(sequence.tokens[t]);
      batch_.positions.push_back(static_cast<int32_t>(sequence.position + static_cast<int64_t>(t)));
    }
  }
}

// Logits, a few rows at a time, and what was asked of each.
absl::Status ModelEngine::Finish(std::span<const SequenceStep> sequences,
                                 std::vector<SequenceResult>& results) {
  for (size_t s = 0; s < sequences.size(); ++s) {
    SampledToken unwanted;
    unwanted.token = -1;
    results[s].prompt_logprobs.assign(sequences[s].next_tokens.size(), unwanted);
  }
  for (size_t begin = 0; begin < logit_uses_.size(); begin += kLogitRows) {
    const size_t count = std::min<size_t>(kLogitRows, logit_uses_.size() - begin);
    ComputeLogits(model_, static_cast<int64_t>(begin), static_cast<int64_t>(count), state_);
    for (size_t i = 0; i < count; ++i) {
      const LogitUse& use = logit_uses_[begin + i];
      const float* row = static_cast<const float*>(state_.logits.data) +
                         static_cast<int64_t>(i) * state_.logits.stride;
      const absl::Status used =
          Use(sequences[use.sequence], use.token, {row, static_cast<size_t>(config_.vocab_size)},
              results[use.sequence]);
      if (!used.ok()) {
        return absl::Status(used.code(), "sequences[" + std::to_string(use.sequence) +
                                             "]: " + std::string(used.message()));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ModelEngine::Use(const SequenceStep& sequence, size_t token,
                              std::span<const float> logits, SequenceResult& result) {
  if (!sequence.next_tokens.empty() && sequence.next_tokens[token] >= 0) {
    const int alternatives = sequence.sampling != nullptr ? sequence.sampling->top_logprobs : 0;
    absl::StatusOr<SampledToken> logprob =
        LogprobsOf(logits, sequence.next_tokens[token], alternatives);
    if (!logprob.ok()) return logprob.status();
    result.prompt_logprobs[token] = *std::move(logprob);
  }
  if (token + 1 != sequence.tokens.size()) return absl::OkStatus();
  if (sequence.want_logits) result.logits.assign(logits.begin(), logits.end());
  if (!sequence.sample) return absl::OkStatus();
  absl::StatusOr<SampledToken> sampled = sampler_.Sample(
      logits, *sequence.sampling, sequence.token_index, sequence.prompt, sequence.output);
  if (!sampled.ok()) return sampled.status();
  result.sampled = *std::move(sampled);
  return absl::OkStatus();
}

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
                                      ": one block takes " + std::to_string(bytes_a_block));
  }
  if (kv.num_blocks > INT32_MAX || kv.num_blocks > (int64_t{1} << 48) / bytes_a_block) {
    return absl::InvalidArgumentError("num_blocks = " + std::to_string(kv.num_blocks) +
                                      ": too many");
  }
  return kv;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeModelEngine(const std::string& model_dir,
                                                        std::unique_ptr<Ops> ops,
                                                        std::unique_ptr<Device> device,
                                                        const ModelEngineOptions& options) {
  const absl::Status checked = CheckOptions(options);
  if (!checked.ok()) return checked;
  const absl::StatusOr<std::string> text =
      ReadSmallFile(model_dir + "/config.json", kConfigBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*text, options.max_positions);
  if (!config.ok()) return config.status();
  absl::StatusOr<TensorStore> tensors = TensorStore::Open(model_dir);
  if (!tensors.ok()) return tensors.status();
  absl::StatusOr<ModelWeights> weights = BindWeights(*config, *tensors);
  if (!weights.ok()) return weights.status();
  const absl::StatusOr<KvSpec> kv = MakeKvSpec(*config, weights->common, options);
  if (!kv.ok()) return kv.status();

  EngineSpec spec;
  spec.model_hash = ModelHash(*text, *tensors);
  spec.device = options.device_name;
  spec.vocab_size = config->vocab_size;
  spec.max_positions =
      static_cast<int>(std::min<int64_t>(config->max_positions, kv->num_blocks * kv->block_tokens));
  spec.num_parameters = weights->num_parameters;
  spec.kv = *kv;
  absl::StatusOr<RunState> state =
      AllocateRunState(*config, weights->activation, *kv, options.max_batch_tokens,
                       std::min<int64_t>(kLogitRows, options.max_batch_tokens), device.get());
  if (!state.ok()) return state.status();
  return std::make_unique<ModelEngine>(std::move(ops), std::move(device), *std::move(tensors),
                                       *std::move(config), *std::move(weights), std::move(spec),
                                       *std::move(state), options.max_batch_tokens);
}

}  // namespace skein::engine
