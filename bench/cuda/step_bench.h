// What a serving engine does in its steps, timed as the worker sees it: from the call to the
// sampled tokens. Whatever the engine's device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/engine.h"
#include "engine/sampling/sampling_params.h"

namespace skein::bench {

// The least cost of steps of a model whose matrices are 16-bit.
struct StepCosts {
  double weight_bytes = 0;     // that a decode step reads, whatever its batch
  double kv_token_bytes = 0;   // keys and values of one token, all layers
  double layer_flops = 0;      // products of one token, all layers
  double head_flops = 0;       // of one token whose logits are wanted
  double attention_flops = 0;  // of one query and one key, all layers

  double DecodeBytes(int64_t batch, int64_t context) const {
    return weight_bytes + static_cast<double>(batch * context) * kv_token_bytes;
  }
  // A causal prompt has half of all pairs.
  double PrefillFlops(int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    return n * layer_flops + head_flops + n * (n + 1) / 2 * attention_flops;
  }
};
StepCosts CostsOf(const engine::ModelConfig& config);

// Blocks that Prefill or a batch of `batch` takes.
int64_t BlocksFor(int64_t batch, int64_t tokens, int block_tokens);

class StepBench {
 public:
  // Prompts run in chunks of `chunk_tokens`. The engine has the blocks that are asked for.
  StepBench(engine::Engine* engine, int64_t chunk_tokens);

  // Seconds from an empty KV to the first token.
  absl::StatusOr<double> Prefill(int64_t tokens);

  // Fills the KV of `batch` sequences with `context` tokens each; up to `steps` may follow.
  absl::Status StartDecode(int64_t batch, int64_t context, int64_t steps);
  // Seconds of a step of all of them.
  absl::StatusOr<double> DecodeStep();

 private:
  struct Sequence {
    std::vector<int32_t> prompt;
    std::vector<int32_t> blocks;
    int64_t done = 0;  // tokens in KV
    int32_t next = 0;  // sampled last
  };
  absl::Status Place(int64_t batch, int64_t tokens, int64_t room);
  // A step of up to chunk_tokens_ tokens of the sequences' prompts; false when none is left.
  absl::StatusOr<bool> RunChunk();
  absl::StatusOr<double> Step(const std::vector<engine::SequenceStep>& steps);

  engine::Engine* const engine_;
  const int64_t chunk_tokens_;
  engine::SamplingParams greedy_;
  std::vector<Sequence> sequences_;
  std::vector<engine::SequenceResult> results_;
};

}  // namespace skein::bench
