// EmulatedEngine: an Engine without a model. Its KV blocks are real memory that holds content tags,
// and each drawn token is a digest of ALL tags of the sequence, read through its block table: a
// wrong, stale, early-freed, half-written or misplaced block changes the output.
//
// Tags. Every token has a link, a hash chain over (position, token) from the sequence's start, so
// that equal prefixes have equal KV whoever wrote it. A token's place in a block (kv_spec.h: K and
// V, every head) is filled with 64-bit words that mix the link with layer, part, head and word. The
// link itself is not stored elsewhere: a step that continues a sequence recovers it from the KV of
// the token before (layer 0, word 0 is an invertible mix), so wrong KV also poisons what is written
// after it.
//
// The drawn token is digest % vocab_size, where the digest folds every word of positions 0 … n-1 of
// every layer in order. Sampling parameters do not matter, except that ids suppressed until
// min_tokens are never drawn before it (the next id is taken).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"

namespace skein::engine {

struct EmulatedOptions {
  KvSpec kv;  // head_dim * bytes of dtype must be a multiple of 8
  int vocab_size = 1000;
  int max_positions = 4096;
};

class EmulatedEngine : public Engine {
 public:
  // INVALID_ARGUMENT names the field.
  static absl::StatusOr<std::unique_ptr<EmulatedEngine>> Create(const EmulatedOptions& options);

  const EngineSpec& Spec() const override { return spec_; }
  std::span<const KvRegion> KvRegions() const override { return regions_; }
  absl::Status Step(std::span<const SequenceStep> sequences,
                    const std::function<void(int layer)>& layer_done,
                    std::vector<SequenceResult>* results) override;

 private:
  explicit EmulatedEngine(const EmulatedOptions& options);

  uint64_t* Words(int layer, std::span<const int32_t> block_table, int64_t position, int part,
                  int head) const;
  uint64_t LinkBefore(const SequenceStep& sequence) const;
  void Write(const SequenceStep& sequence, int layer, std::span<const uint64_t> links) const;
  uint64_t Digest(const SequenceStep& sequence, int64_t tokens) const;

  EngineSpec spec_;
  int words_per_head_;
  std::vector<std::unique_ptr<uint64_t[]>> memory_;  // one per layer
  std::vector<KvRegion> regions_;
};

// What EmulatedEngine draws first `count` tokens for `prompt`, computed from the tokens alone.
std::vector<int32_t> EmulatedContinuation(const EmulatedOptions& options,
                                          std::span<const int32_t> prompt, int64_t count,
                                          const SamplingParams& sampling = {});

}  // namespace skein::engine
