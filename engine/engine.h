// Engine: runs one step (forward pass and sampling) of a ragged batch on one device.
// Implementations: model (a checkpoint on a Device through Ops) and emulated (content tags in its
// KV; its steps take a profile's time). One thread runs steps; Spec and KvRegions are immutable and
// may be read from any thread.
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
#include "engine/parallel/group_part.h"
#include "engine/sampling/sampling_params.h"
#include "engine/step_progress.h"
#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/token_span.h"

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
  std::vector<RankShare> shares;  // by rank, the same on every rank
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

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const EngineSpec& Spec() const = 0;

  // One region per layer, for transports to register. Stable for the engine's life.
  virtual std::span<const KvRegion> KvRegions() const = 0;

  // Runs all sequences in one forward pass; results[i] belongs to sequences[i] (resized by the
  // engine). A sequence that fails does so alone, with a status of its own (SequenceResult): the
  // others get bit for bit what they would have got without it. `progress` tells meanwhile how many
  // layers' KV of the sequences that run is written, so that a handoff can overlap with later
  // layers; null: nobody asks. When Step returns, whatever it returns, the device is done with it:
  // its blocks may go to others.
  //
  // Errors are those of the whole step; `results` then mean nothing. INVALID_ARGUMENT: no
  // sequences, too many tokens together, or a ring sequence beside others; nothing was run. A
  // ring step ends with UNAVAILABLE or DEADLINE_EXCEEDED when a collective failed: what it
  // wrote is undefined (blocks of `tokens` and `receive` only), its communicators are broken, the
  // engine is as good as before. Other errors: the device failed, the engine is unusable.
  //
  // The messages of a ring step are tagged with a digest of what all ranks must have been given
  // alike (step_digest.h). Where that differs the step ends with INVALID_ARGUMENT or UNAVAILABLE at
  // every rank, at its first exchange or, where ranks wait for messages that nobody means to send,
  // at the deadline. A rank that refuses its part has INVALID_ARGUMENT in `results`, runs nothing
  // and breaks the communicators, so that the step ends with UNAVAILABLE and this reason at the
  // others. (A rank that was given no communicator cannot tell the others.) At its end the ranks
  // meet, on both communicators: a step is OK at one rank only after every rank has run all its
  // layers, so an Abort or a failure before that, at any rank, fails it at all. Only what happens
  // in that last meeting (an Abort, a death, a deadline) may fail it at some ranks while it is OK
  // at others. What follows the meeting, sampling and logprobs, concerns the rank alone.
  virtual absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                            std::vector<SequenceResult>* results) = 0;

  // A step of all ranks of part.all together, which may follow and precede any other: every rank is
  // given the same sequences (block tables are its own), all of layout tp = P, and the same mode
  // and deadline. Results are the same bits on every rank. A sequence's steps may change the mode
  // freely: all modes of as many ranks share its KV.
  //
  // A sequence that all ranks refuse is refused alone. INVALID_ARGUMENT: as Step, or a mode that
  // this engine cannot run in; nothing was run or sent. FAILED_PRECONDITION: the ranks were not
  // given the same step of the same model, in any field that can change a token (step_digest.h), or
  // refuse different sequences; the step ended at its first exchange. (Ranks whose first exchanges
  // are with others find out at the deadline.) UNAVAILABLE, DEADLINE_EXCEEDED: a collective failed.
  // In all three cases the step counts as failed at every rank, whatever the others saw; its
  // communicators are broken (aborted, so that nobody waits for the deadline) and the KV of its own
  // tokens is undefined, but earlier KV is untouched and the engine stays usable: the same step may
  // run again, in other company.
  virtual absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                                    StepProgress* progress,
                                    std::vector<SequenceResult>* results) = 0;
};

}  // namespace skein::engine
