// Engine: runs one step (forward pass and sampling) of a ragged batch on one device.
// Implementations: model (a checkpoint on a Device through Ops), emulated (content tags in its KV,
// later a profile's time). One thread calls Step; Spec and KvRegions are immutable and may be read
// from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/kv_spec.h"
#include "engine/sampling/sampling_params.h"

namespace skein::engine {

struct EngineSpec {
  std::string model_hash;  // hex SHA-256 over config.json and every tensor's name, dtype, shape and
                           // bytes offsets + sampled bytes
  std::string device;      // "cpu", "emulated", "cuda:0"
  int vocab_size = 0;
  int max_positions = 0;  // longest sequence, prompt and output
  int64_t num_parameters = 0;
  KvSpec kv;
};

// What one sequence runs in this step. Spans are owned by the caller and must live until Step
// returns.
struct SequenceStep {
  std::span<const int32_t>
      tokens;            // ≥ 1 tokens to run, at positions position … position + size - 1
  int64_t position = 0;  // = tokens of this sequence already in KV
  std::span<const int32_t> block_table;  // covers position + tokens.size() tokens
  KvLayout layout;

  // Draw a token after the last of `tokens` (false for all but a prompt's last chunk).
  bool sample = false;
  const SamplingParams* sampling = nullptr;  // required when `sample`
  uint64_t token_index = 0;  // index of the drawn token in the output: the generator's counter
  std::span<const int32_t> prompt;  // whole prompt, for the repetition penalty
  std::span<const int32_t> output;  // tokens drawn so far, for penalties

  // Logprobs of the prompt: for each of `tokens`, the logprob of `next_tokens[i]` as the token
  // after it. Empty, or tokens.size() ids where -1 means "not wanted". Alternatives as
  // sampling->top_logprobs asks.
  std::span<const int32_t> next_tokens;

  bool want_logits = false;  // copy the raw logits of the last token into SequenceResult::logits
};

struct SequenceResult {
  SampledToken sampled;                       // valid when `sample` was set
  std::vector<SampledToken> prompt_logprobs;  // one per next_tokens entry; token = that next token
  std::vector<float> logits;                  // [vocab_size] when want_logits
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const EngineSpec& Spec() const = 0;

  // One region per layer, for transports to register. Stable for the engine's life.
  virtual std::span<const KvRegion> KvRegions() const = 0;

  // Runs all sequences in one forward pass; results[i] belongs to sequences[i] (resized by the
  // engine). `layer_done(l)` is called from inside Step when layer l's KV of this batch is written
  // (in order, l = 0 … layers-1), so that a handoff can overlap with later layers; it must not
  // block. INVALID_ARGUMENT names the sequence and field (token id out of range, position beyond
  // max_positions, short block table, block id out of range); nothing was run then. Other errors:
  // the device failed, the engine is unusable.
  virtual absl::Status Step(std::span<const SequenceStep> sequences,
                            const std::function<void(int layer)>& layer_done,
                            std::vector<SequenceResult>* results) = 0;
};

}  // namespace skein::engine
