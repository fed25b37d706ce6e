#include "engine/model/forward/step_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/sampling/logprobs.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

bool WantsLogits(const SequenceStep& sequence, size_t token) {
  const bool last = token + 1 == sequence.tokens.size();
  return (last && (sequence.sample || sequence.want_logits)) ||
         (!sequence.next_tokens.empty() && sequence.next_tokens[token] >= 0);
}

// What need not be walked for penalties; null: prompt and output must be.
const SeenIds* SeenBy(const SequenceStep& sequence) {
  const bool whole = sequence.checked.output == sequence.output.size();
  return whole ? sequence.checked.seen : nullptr;
}

// Uses one row's logits: prompt logprobs, raw logits, sampling.
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
  absl::StatusOr<SampledToken> sampled =
      sampler.Sample(logits, *sequence.sampling, sequence.token_index, sequence.prompt,
                     sequence.output, SeenBy(sequence));
  if (!sampled.ok()) return sampled.status();
  result.sampled = *std::move(sampled);
  return absl::OkStatus();
}

void StartResults(std::span<const SequenceStep> sequences, std::vector<SequenceResult>& results) {
  SKEIN_CHECK(results.size() == sequences.size());
  SampledToken unwanted;
  unwanted.token = -1;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!results[s].status.ok()) continue;
    results[s].prompt_logprobs.assign(sequences[s].next_tokens.size(), unwanted);
  }
}

// A step's requests to a TokenSampler, with where their answers go.
class Requests {
 public:
  Requests(TokenSampler* sampler, std::vector<SequenceResult>* results)
      : sampler_(sampler), results_(results) {}

  // Adds the requests for row `row` of `logits` that `use` asks for.
  absl::Status Add(const ConstMatrix& logits, int64_t row, const SequenceStep& sequence,
                   const LogitUse& use) {
    static const SamplingParams kNoAlternatives = {.top_logprobs = 0};
    SequenceResult& result = (*results_)[use.sequence];
    if (!sequence.next_tokens.empty() && sequence.next_tokens[use.token] >= 0) {
      const bool asked = sequence.sampling != nullptr;
      const absl::Status added = Put(logits,
                                     {.row = row,
                                      .params = asked ? sequence.sampling : &kNoAlternatives,
                                      .given = sequence.next_tokens[use.token]},
                                     use.sequence, &result.prompt_logprobs[use.token]);
      if (!added.ok()) return added;
    }
    if (use.token + 1 != sequence.tokens.size() || !sequence.sample) return absl::OkStatus();
    return Put(logits,
               {.row = row,
                .params = sequence.sampling,
                .token_index = sequence.token_index,
                .prompt = sequence.prompt,
                .output = sequence.output,
                .seen = SeenBy(sequence)},
               use.sequence, &result.sampled);
  }

  absl::Status Flush(const ConstMatrix& logits) {
    tokens_.resize(requests_.size());
    const absl::Status ran = sampler_->Sample(logits, requests_, tokens_);
    if (!ran.ok()) return ran;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].ok()) {
        *answers_[i] = *std::move(tokens_[i]);
      } else {
        (*results_)[sequences_[i]].status.Update(tokens_[i].status());
      }
    }
    requests_.clear();
    sequences_.clear();
    answers_.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status Put(const ConstMatrix& logits, const SampleRequest& request, size_t sequence,
                   SampledToken* answer) {
    requests_.push_back(request);
    sequences_.push_back(sequence);
    answers_.push_back(answer);
    if (requests_.size() < static_cast<size_t>(sampler_->RequestsMax())) return absl::OkStatus();
    return Flush(logits);
  }

  TokenSampler* const sampler_;
  std::vector<SequenceResult>* const results_;
  std::vector<SampleRequest> requests_;
  std::vector<size_t> sequences_;
  std::vector<SampledToken*> answers_;
  std::vector<absl::StatusOr<SampledToken>> tokens_;
};

}  // namespace

bool TakesAll(const TokenSampler& sampler, std::span<const SequenceStep> sequences,
              std::span<const SequenceResult> results) {
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!results[s].status.ok()) continue;
    if (sequences[s].want_logits) return false;
    const SamplingParams* sampling = sequences[s].sampling;
    if (sampling != nullptr && !sampler.Takes(*sampling)) return false;
  }
  return true;
}

absl::Status SampleOnDevice(std::span<const SequenceStep> sequences, std::span<const LogitUse> uses,
                            const LogitsOf& logits_of, int64_t rows_max, TokenSampler& sampler,
                            std::vector<SequenceResult>& results) {
  StartResults(sequences, results);
  Requests requests(&sampler, &results);
  const auto at_once = static_cast<size_t>(rows_max);
  for (size_t begin = 0; begin < uses.size(); begin += at_once) {
    const size_t count = std::min(at_once, uses.size() - begin);
    const absl::StatusOr<ConstMatrix> logits =
        logits_of(static_cast<int64_t>(begin), static_cast<int64_t>(count));
    if (!logits.ok()) return logits.status();
    for (size_t i = 0; i < count; ++i) {
      const LogitUse& use = uses[begin + i];
      const absl::Status added =
          requests.Add(*logits, static_cast<int64_t>(i), sequences[use.sequence], use);
      if (!added.ok()) return added;
    }
    const absl::Status flushed = requests.Flush(*logits);
    if (!flushed.ok()) return flushed;
  }
  return absl::OkStatus();
}

void FillBatch(std::span<const SequenceStep> sequences, std::span<const SequenceResult> results,
               Batch* batch, std::vector<LogitUse>* uses) {
  batch->ids.clear();
  batch->positions.clear();
  batch->sequences.clear();
  batch->logit_rows.clear();
  batch->padding = 0;
  uses->clear();
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (!results[s].status.ok()) continue;
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
                       const LogitsOf& logits_of, int64_t rows_max, Samplers& samplers,
                       std::vector<SequenceResult>& results) {
  StartResults(sequences, results);
  const auto at_once = static_cast<size_t>(rows_max);
  for (size_t begin = 0; begin < uses.size(); begin += at_once) {
    const size_t count = std::min(at_once, uses.size() - begin);
    const absl::StatusOr<ConstMatrix> logits =
        logits_of(static_cast<int64_t>(begin), static_cast<int64_t>(count));
    if (!logits.ok()) return logits.status();
    // Rows of one sequence write to different places of its result, but for its status.
    std::vector<absl::Status> used(count);
    samplers.ForRows(static_cast<int64_t>(count), [&](int64_t row, Sampler& sampler) {
      const LogitUse& use = uses[begin + static_cast<size_t>(row)];
      SequenceResult& result = results[use.sequence];
      if (!result.status.ok()) return;
      const float* values = static_cast<const float*>(logits->data) + row * logits->stride;
      used[static_cast<size_t>(row)] =
          Use(sequences[use.sequence], use.token, {values, static_cast<size_t>(logits->cols)},
              sampler, result);
    });
    for (size_t i = 0; i < count; ++i) results[uses[begin + i].sequence].status.Update(used[i]);
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
