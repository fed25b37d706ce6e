// What one step (forward pass and sampling of a ragged batch) is given, and what it gives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/kv/kv_spec.h"
#include "engine/sampling/sampling_params.h"
#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/token_span.h"

namespace skein::engine {

class SeenIds;

struct EngineSpec {
  std::string model_hash;  // hex SHA-256 over config.json and every tensor's name, dtype, shape and
                           // bytes offsets + sampled bytes
  std::string device;      // "cpu", "emulated", "cuda:0"
  int vocab_size = 0;
  int max_positions = 0;  // longest sequence, prompt and output
  int64_t num_parameters = 0;
  KvSpec kv;
  // Of kv.num_blocks, the last ones: they are there only while the engine's owner has them come.
  int64_t extra_blocks = 0;
  int64_t own_blocks() const { return kv.num_blocks - extra_blocks; }
};

// One rank's share of a ring step.
struct RankShare {
  int64_t history_tokens = 0;    // earlier tokens that it attends from, whole blocks
  std::vector<TokenSpan> spans;  // tokens that it runs: ascending, each starts on a block boundary;
                                 // all but the prompt's last block are full
  // The prompt's blocks (0, 1, …) that the history is, ascending. An engine that is reproducible
  // refuses a history without them; the others do not use them.
  std::vector<int32_t> history;
  // Whether logits of its tokens are wanted: it samples, or logprobs of the prompt are wanted. The
  // last layer's KV passes to such ranks only.
  bool wants_logits = true;
  bool operator==(const RankShare&) const = default;
};

// A chunk of one prompt that several instances run together (Tetris, section 4.1): ring attention
// over tokens dealt in zigzag, and over the earlier chunks' KV dealt evenly. All ranks enter the
// same step; the shares' histories are the prompt's tokens before it, their spans together its
// tokens, each exactly once.
//
// Before layer l attends, this rank's blocks `receive[r]` of layer l are filled with what rank r
// lists in its `send[this rank]`, block by block in order. What is sent stays as it was.
struct RingStep {
  Communicator* comm = nullptr;   // of the members; its rank and size are the step's. Null: alone.
  Communicator* moves = nullptr;  // a second group of the same members, which moves KV while `comm`
                                  // computes. Null on all ranks when nothing moves.
  // Set when tp > 1: of the `tp` ranks from Rank() / tp * tp on, in their order, which compute the
  // dense part of all their tokens together, each with 1 / tp of its weights. The step is then
  // (Size() / tp, tp); tp is a power of two that divides Size(), and the same on every rank.
  Communicator* tensor = nullptr;
  int tp = 1;
  std::vector<RankShare> shares;        // by rank, the same on every rank
  std::vector<BlockId> history_blocks;  // of this rank's history, kept and received, in
                                        // the prompt's order; all full
  // By rank: the blocks whose KV that rank gets, and those that are filled from it. Empty, or one
  // entry for each rank.
  std::vector<std::vector<BlockId>> send;
  std::vector<std::vector<BlockId>> receive;
  int64_t moved_blocks_max = 0;  // the most that one rank sends another; the same on every rank
  std::chrono::steady_clock::time_point deadline;  // of the whole step
};

// One sequence's part in a step. The caller owns the spans and keeps them until Step returns.
struct SequenceStep {
  std::span<const int32_t>
      tokens;            // ≥ 1 tokens to run, at positions position … position + size - 1
  int64_t position = 0;  // = tokens of this sequence already in KV
  // Covers position + tokens.size() tokens. Plain numbers (NumbersOf): kernels read them.
  std::span<const int32_t> block_table;
  KvLayout layout;

  // Set: `tokens` are this rank's tokens of a ring step, its spans end to end (none is fine),
  // `block_table` the blocks of those spans in order, `position` is not used. The only sequence of
  // its step. `sample` only at the rank that runs the prompt's last token.
  const RingStep* ring = nullptr;

  // Sample a token after the last of `tokens` (false for all but the last slice of a prompt).
  bool sample = false;
  const SamplingParams* sampling = nullptr;  // required when `sample`
  uint64_t token_index = 0;  // index of the sampled token in the output: the generator's counter
  std::span<const int32_t> prompt;  // whole prompt, for the repetition penalty
  std::span<const int32_t> output;  // tokens sampled so far, for penalties

  // Logprobs of the prompt: for each of `tokens`, the logprob of `next_tokens[i]` as the token
  // after it. Empty, or tokens.size() ids where -1 means "not wanted". Alternatives as
  // sampling->top_logprobs asks.
  std::span<const int32_t> next_tokens;

  // What an engine's owner has checked before, so that no step need do so again.
  struct Checked {
    bool prompt_and_sampling = false;
    size_t blocks = 0;  // the first of block_table
    size_t output = 0;  // the first of output
    // Of engine/parallel/step_digest.h: that of prompt and sampling (0: not known), and that of the
    // first `output` of output.
    uint64_t identity = 0;
    uint64_t output_digest = 0;
    // Of `sampling`, the prompt and the first `output` of output (engine/sampling/seen_ids.h).
    // Null: not kept.
    const SeenIds* seen = nullptr;
  };
  Checked checked;

  bool want_logits = false;  // copy the raw logits of the last token into SequenceResult::logits
};

struct SequenceResult {
  // Not OK: this sequence has failed, alone, and the other fields mean nothing. INVALID_ARGUMENT:
  // it was refused by the check, which names the field and the value, and was not run; or its
  // logit_bias and suppressed ids leave no token to sample. INTERNAL: its logits hold NaN or
  // infinity.
  absl::Status status;
  SampledToken sampled;                       // valid when `sample` was set
  std::vector<SampledToken> prompt_logprobs;  // one per next_tokens entry; token = that next token
  std::vector<float> logits;                  // [vocab_size] when want_logits
};

}  // namespace skein::engine
