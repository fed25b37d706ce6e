#include "engine/model/step_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/sampling/logprobs.h"

namespace skein::engine {
namespace {

bool WantsLogits(const SequenceStep& sequence, size_t token) {
  const bool last = token + 1 == sequence.tokens.size();
  return (last && (sequence.sample || sequence.want_logits)) ||
         (!sequence.next_tokens.empty() && sequence.next_tokens[token] >= 0);
}

// What one row's logits are wanted for.
absl::Status Use(const SequenceStep& sequence, size_t token, std::span<const float> logits,
                 Sampler& sampler, SequenceResult& result) {
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
  absl::StatusOr<SampledToken> sampled = sampler.Sample(
      logits, *sequence.sampling, sequence.token_index, sequence.prompt, sequence.output);
  if (!sampled.ok()) return sampled.status();
  result.sampled = *std::move(sampled);
  return absl::OkStatus();
}

}  // namespace

void FillBatch(std::span<const SequenceStep> sequences, Batch* batch, std::vector<LogitUse>* uses) {
  batch->ids.clear();
  batch->positions.clear();
  batch->sequences.clear();
  batch->logit_rows.clear();
  uses->clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequenceStep& sequence = sequences[s];
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    batch->sequences.push_back(
        {batch->tokens(), count, sequence.position, sequence.block_table, sequence.layout});
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      if (WantsLogits(sequence, t)) {
        batch->logit_rows.push_back(static_cast<int32_t>(batch->tokens()));
        uses->push_back({s, t});
      }
      batch->ids.push_back(sequence.tokens[t]);
      batch->positions.push_back(static_cast<int32_t>(sequence.position + static_cast<int64_t>(t)));
    }
  }
}

absl::Status UseLogits(std::span<const SequenceStep> sequences, std::span<const LogitUse> uses,
                       const LogitsOf& logits_of, Sampler& sampler,
                       std::vector<SequenceResult>& results) {
  results.clear();
  results.resize(sequences.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    SampledToken unwanted;
    unwanted.token = -1;
    results[s].prompt_logprobs.assign(sequences[s].next_tokens.size(), unwanted);
  }
  for (size_t begin = 0; begin < uses.size(); begin += kFewRowsMax) {
    const size_t count = std::min<size_t>(kFewRowsMax, uses.size() - begin);
    const absl::StatusOr<ConstMatrix> logits =
        logits_of(static_cast<int64_t>(begin), static_cast<int64_t>(count));
    if (!logits.ok()) return logits.status();
    for (size_t i = 0; i < count; ++i) {
      const LogitUse& use = uses[begin + i];
      const float* row =
          static_cast<const float*>(logits->data) + static_cast<int64_t>(i) * logits->stride;
      const absl::Status used =
          Use(sequences[use.sequence], use.token, {row, static_cast<size_t>(logits->cols)}, sampler,
              results[use.sequence]);
      if (!used.ok()) {
        return absl::Status(used.code(), "sequences[" + std::to_string(use.sequence) +
                                             "]: " + std::string(used.message()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
