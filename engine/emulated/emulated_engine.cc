#include "engine/emulated/emulated_engine.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/model/step_check.h"

namespace skein::engine {
namespace {

constexpr uint64_t kChainStart = 0x9e3779b97f4a7c15u;
constexpr int kParts = 2;  // K, V

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t NextLink(uint64_t link, int64_t position, int32_t token) {
  return Mix(link ^ Mix(static_cast<uint64_t>(position) * 0x10001u +
                        static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
}

// The word stored at (layer, part, head, word) for a token with this link. The salt of the very
// first place is 0, so that the link can be read back there.
uint64_t Word(uint64_t link, int layer, int part, int head, int word) {
  const uint64_t place =
      ((static_cast<uint64_t>(layer) * kParts + part) * 4096 + head) * 4096 + word;
  return place == 0 ? link : Mix(link + place * kChainStart);
}

uint64_t Fold(uint64_t digest, uint64_t word) { return Mix(digest + kChainStart) ^ word; }

int32_t Draw(uint64_t digest, int vocab_size, const SamplingParams* sampling, uint64_t index) {
  auto token = static_cast<int32_t>(digest % static_cast<uint64_t>(vocab_size));
  if (sampling == nullptr || index >= static_cast<uint64_t>(std::max(0, sampling->min_tokens))) {
    return token;
  }
  const std::vector<int32_t>& suppressed = sampling->suppressed_until_min_tokens;
  for (int tries = 0; tries < vocab_size; ++tries) {
    if (std::find(suppressed.begin(), suppressed.end(), token) == suppressed.end()) break;
    token = (token + 1) % vocab_size;
  }
  return token;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedEngine>> EmulatedEngine::Create(
    const EmulatedOptions& options) {
  const KvSpec& kv = options.kv;
  const auto invalid = [](const char* field) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": not positive"));
  };
  if (kv.num_layers < 1) return invalid("kv.num_layers");
  if (kv.kv_heads < 1) return invalid("kv.kv_heads");
  if (kv.head_dim < 1) return invalid("kv.head_dim");
  if (kv.block_tokens < 1) return invalid("kv.block_tokens");
  if (kv.num_blocks < 1) return invalid("kv.num_blocks");
  if (options.vocab_size < 1) return invalid("vocab_size");
  if (options.max_positions < 1) return invalid("max_positions");
  if (kv.head_dim * BytesOf(kv.dtype) % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError("kv.head_dim: a head's bytes are no multiple of 8");
  }
  return std::unique_ptr<EmulatedEngine>(new EmulatedEngine(options));
}

EmulatedEngine::EmulatedEngine(const EmulatedOptions& options)
    : words_per_head_(
          static_cast<int>(options.kv.head_dim * BytesOf(options.kv.dtype) / sizeof(uint64_t))) {
  spec_ = {.model_hash = "emulated",
           .device = "emulated",
           .vocab_size = options.vocab_size,
           .max_positions = options.max_positions,
           .num_parameters = 0,
           .kv = options.kv};
  const int64_t bytes = options.kv.num_blocks * options.kv.BlockBytes();
  for (int layer = 0; layer < options.kv.num_layers; ++layer) {
    memory_.push_back(std::make_unique<uint64_t[]>(bytes / sizeof(uint64_t)));
    regions_.push_back({memory_.back().get(), bytes});
  }
}

uint64_t* EmulatedEngine::Words(int layer, std::span<const int32_t> block_table, int64_t position,
                                int part, int head) const {
  const KvSpec& kv = spec_.kv;
  const int64_t block = block_table[position / kv.block_tokens];
  const int64_t slot = position % kv.block_tokens;
  const int64_t row = ((block * kParts + part) * kv.kv_heads + head) * kv.block_tokens + slot;
  return memory_[layer].get() + row * words_per_head_;
}

uint64_t EmulatedEngine::LinkBefore(const SequenceStep& sequence) const {
  if (sequence.position == 0) return kChainStart;
  return Words(0, sequence.block_table, sequence.position - 1, 0, 0)[0];
}

void EmulatedEngine::Write(const SequenceStep& sequence, int layer,
                           std::span<const uint64_t> links) const {
  for (size_t i = 0; i < links.size(); ++i) {
    for (int part = 0; part < kParts; ++part) {
      for (int head = 0; head < spec_.kv.kv_heads; ++head) {
        uint64_t* words = Words(layer, sequence.block_table,
                                sequence.position + static_cast<int64_t>(i), part, head);
        for (int w = 0; w < words_per_head_; ++w) words[w] = Word(links[i], layer, part, head, w);
      }
    }
  }
}

uint64_t EmulatedEngine::Digest(const SequenceStep& sequence, int64_t tokens) const {
  uint64_t digest = 0;
  for (int64_t position = 0; position < tokens; ++position) {
    for (int layer = 0; layer < spec_.kv.num_layers; ++layer) {
      for (int part = 0; part < kParts; ++part) {
        for (int head = 0; head < spec_.kv.kv_heads; ++head) {
          const uint64_t* words = Words(layer, sequence.block_table, position, part, head);
          for (int w = 0; w < words_per_head_; ++w) digest = Fold(digest, words[w]);
        }
      }
    }
  }
  return digest;
}

absl::Status EmulatedEngine::Step(std::span<const SequenceStep> sequences,
                                  const std::function<void(int layer)>& layer_done,
                                  std::vector<SequenceResult>* results) {
  const int64_t tokens_max = std::numeric_limits<int64_t>::max();
  if (absl::Status status = CheckStep(sequences, spec_, tokens_max); !status.ok()) return status;
  std::vector<std::vector<uint64_t>> links(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    uint64_t link = LinkBefore(sequences[i]);
    int64_t position = sequences[i].position;
    for (int32_t token : sequences[i].tokens) {
      links[i].push_back(link = NextLink(link, position++, token));
    }
  }
  for (int layer = 0; layer < spec_.kv.num_layers; ++layer) {
    for (size_t i = 0; i < sequences.size(); ++i) Write(sequences[i], layer, links[i]);
    if (layer_done) layer_done(layer);
  }
  results->assign(sequences.size(), {});
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceStep& sequence = sequences[i];
    SequenceResult& result = (*results)[i];
    for (int32_t next : sequence.next_tokens)
      result.prompt_logprobs.push_back({.token = next, .top = {}});
    if (!sequence.sample) continue;
    const uint64_t digest =
        Digest(sequence, sequence.position + static_cast<int64_t>(sequence.tokens.size()));
    result.sampled.token = Draw(digest, spec_.vocab_size, sequence.sampling, sequence.token_index);
  }
  return absl::OkStatus();
}

std::vector<int32_t> EmulatedContinuation(const EmulatedOptions& options,
                                          std::span<const int32_t> prompt, int64_t count,
                                          const SamplingParams& sampling) {
  const KvSpec& kv = options.kv;
  const auto words_per_head = static_cast<int>(kv.head_dim * BytesOf(kv.dtype) / sizeof(uint64_t));
  std::vector<int32_t> output;
  uint64_t link = kChainStart;
  uint64_t digest = 0;
  int64_t position = 0;
  const auto append = [&](int32_t token) {
    link = NextLink(link, position++, token);
    for (int layer = 0; layer < kv.num_layers; ++layer) {
      for (int part = 0; part < kParts; ++part) {
        for (int head = 0; head < kv.kv_heads; ++head) {
          for (int w = 0; w < words_per_head; ++w) {
            digest = Fold(digest, Word(link, layer, part, head, w));
          }
        }
      }
    }
  };
  for (int32_t token : prompt) append(token);
  while (static_cast<int64_t>(output.size()) < count) {
    output.push_back(Draw(digest, options.vocab_size, &sampling, output.size()));
    append(output.back());
  }
  return output;
}

}  // namespace skein::engine
