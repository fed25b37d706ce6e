#include "engine/model/forward/step_check.h"

#include <algorithm>
#include <string>

#include "engine/sampling/sampler.h"

namespace skein::engine {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

// But for the first `checked`.
absl::Status CheckIds(std::span<const int32_t> ids, const char* field, int32_t low, int32_t end,
                      size_t checked = 0) {
  for (size_t i = checked; i < ids.size(); ++i) {
    if (ids[i] >= low && ids[i] < end) continue;
    return Bad(std::string(field) + "[" + std::to_string(i) + "] = " + std::to_string(ids[i]) +
               ": must be from " + std::to_string(low) + " to " + std::to_string(end - 1));
  }
  return absl::OkStatus();
}

absl::Status TooMany(const char* field, int64_t tokens, int64_t tokens_max) {
  return Bad(std::string(field) + ": " + std::to_string(tokens) + " tokens in one step, at most " +
             std::to_string(tokens_max));
}

absl::Status CheckPlace(const SequenceStep& sequence, const EngineSpec& spec, int64_t tokens_max,
                        KvLayout layout) {
  const auto count = static_cast<int64_t>(sequence.tokens.size());
  if (count == 0) return Bad("tokens: empty");
  if (count > tokens_max) return TooMany("tokens", count, tokens_max);
  if (sequence.position < 0 || sequence.position > spec.max_positions - count) {
    return Bad("position = " + std::to_string(sequence.position) + ": with " +
               std::to_string(count) +
               " tokens beyond max_positions = " + std::to_string(spec.max_positions));
  }
  if (sequence.layout != layout) {
    return Bad("layout.tp = " + std::to_string(sequence.layout.tp) +
               ": this step runs tp = " + std::to_string(layout.tp));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const SequenceStep& sequence, const EngineSpec& spec, int64_t tokens) {
  const int64_t block_tokens = TokensPerBlock(sequence.layout, spec.kv);
  const int64_t blocks = (tokens + block_tokens - 1) / block_tokens;
  if (static_cast<int64_t>(sequence.block_table.size()) < blocks) {
    return Bad("block_table: " + std::to_string(sequence.block_table.size()) + " blocks, " +
               std::to_string(blocks) + " needed");
  }
  return CheckIds(sequence.block_table.first(blocks), "block_table", 0,
                  static_cast<int32_t>(spec.kv.num_blocks), sequence.checked.blocks);
}

absl::Status CheckSampling(const SequenceStep& sequence, int vocab_size) {
  if (sequence.sample && sequence.sampling == nullptr) return Bad("sampling: required by sample");
  const bool checked = sequence.checked.prompt_and_sampling;
  if (sequence.sampling != nullptr && !checked) {
    const absl::Status params = CheckSamplingParams(*sequence.sampling, vocab_size);
    if (!params.ok()) return params;
  }
  if (!sequence.next_tokens.empty() && sequence.next_tokens.size() != sequence.tokens.size()) {
    return Bad("next_tokens: " + std::to_string(sequence.next_tokens.size()) + " ids for " +
               std::to_string(sequence.tokens.size()) + " tokens");
  }
  absl::Status ids = CheckIds(sequence.next_tokens, "next_tokens", -1, vocab_size);
  if (ids.ok() && !checked) ids = CheckIds(sequence.prompt, "prompt", 0, vocab_size);
  if (ids.ok()) {
    ids = CheckIds(sequence.output, "output", 0, vocab_size, sequence.checked.output);
  }
  return ids;
}

}  // namespace

absl::Status CheckContents(const SequenceStep& sequence, const EngineSpec& spec, int64_t before) {
  const auto count = static_cast<int64_t>(sequence.tokens.size());
  absl::Status status = CheckTable(sequence, spec, before + count);
  if (status.ok()) status = CheckIds(sequence.tokens, "tokens", 0, spec.vocab_size);
  if (status.ok()) status = CheckSampling(sequence, spec.vocab_size);
  return status;
}

absl::Status CheckStep(std::span<const SequenceStep> sequences, const EngineSpec& spec,
                       int64_t tokens_max, KvLayout layout, std::vector<SequenceResult>* results) {
  results->clear();
  results->resize(sequences.size());
  if (sequences.empty()) return Bad("sequences: empty");
  int64_t tokens = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceStep& sequence = sequences[i];
    if (sequence.ring != nullptr) {
      return Bad("sequences[" + std::to_string(i) + "].ring: not in such a step");
    }
    absl::Status& status = (*results)[i].status;
    status = CheckPlace(sequence, spec, tokens_max, layout);
    if (status.ok()) status = CheckContents(sequence, spec, sequence.position);
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    if (count <= tokens_max) tokens += count;  // else it is refused, alone
  }
  if (tokens > tokens_max) return TooMany("sequences", tokens, tokens_max);
  return absl::OkStatus();
}

bool AnyRuns(std::span<const SequenceResult> results) {
  return std::any_of(results.begin(), results.end(),
                     [](const SequenceResult& result) { return result.status.ok(); });
}

}  // namespace skein::engine
