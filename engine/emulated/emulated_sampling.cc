#include "engine/emulated/emulated_sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "engine/emulated/tags.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sample_errors.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {
namespace {

constexpr float kGreedyBelow = 1e-5f;   // as in Sampler
constexpr float kLogprobStep = -0.25f;  // between an id and the next less likely one

uint64_t HashOf(float value) { return Mix64(uint64_t{std::bit_cast<uint32_t>(value)} + 1); }
uint64_t HashOf(int32_t id) { return Mix64((uint64_t{static_cast<uint32_t>(id)} << 32) + 1); }

bool Suppresses(const SamplingParams& params, uint64_t index) {
  return index < static_cast<uint64_t>(std::max(0, params.min_tokens)) &&
         !params.suppressed_until_min_tokens.empty();
}

// A sum does not depend on the order of ids, as penalties do not.
uint64_t SumOfDistinct(std::span<const int32_t> ids, std::set<int32_t>* seen) {
  uint64_t sum = 0;
  for (const int32_t id : ids) {
    if (seen->insert(id).second) sum += HashOf(id);
  }
  return sum;
}

uint64_t SumOfAll(std::span<const int32_t> ids) {
  uint64_t sum = 0;
  for (const int32_t id : ids) sum += HashOf(id);
  return sum;
}

// 0: the logits stay as they are.
uint64_t EditsOf(const SamplingParams& params, uint64_t index, std::span<const int32_t> prompt,
                 std::span<const int32_t> output) {
  uint64_t edits = 0;
  const auto edit = [&edits](uint64_t kind, uint64_t amount, uint64_t ids) {
    edits = Fold(Fold(Fold(edits, kind), amount), ids);
  };
  if (params.repetition_penalty != 1.0f) {
    std::set<int32_t> seen;
    const uint64_t of_prompt = SumOfDistinct(prompt, &seen);
    edit(1, HashOf(params.repetition_penalty), of_prompt + SumOfDistinct(output, &seen));
  }
  if (params.frequency_penalty != 0.0f && !output.empty()) {
    edit(2, HashOf(params.frequency_penalty), SumOfAll(output));
  }
  if (params.presence_penalty != 0.0f && !output.empty()) {
    std::set<int32_t> seen;
    edit(3, HashOf(params.presence_penalty), SumOfDistinct(output, &seen));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (bias != 0.0f) edit(4, HashOf(bias), HashOf(id));
  }
  if (Suppresses(params, index)) edit(5, 0, SumOfAll(params.suppressed_until_min_tokens));
  return edits;
}

uint64_t DistanceOf(uint64_t start, const SamplingParams& params, uint64_t index, uint64_t ids) {
  if (params.temperature < kGreedyBelow || params.top_k == 1) return 0;
  uint64_t hash = Fold(start, std::bit_cast<uint64_t>(UniformSample(params.seed, index)));
  for (const float value : {params.temperature, params.top_p, params.min_p}) {
    hash = Fold(hash, HashOf(value));
  }
  const uint64_t top_k = params.top_k > 0 ? static_cast<uint64_t>(params.top_k) : ids;
  return Mix64(hash) % std::min(top_k, ids);
}

std::set<int32_t> RuledOut(const SamplingParams& params, uint64_t index) {
  std::set<int32_t> ids;
  if (Suppresses(params, index)) {
    ids.insert(params.suppressed_until_min_tokens.begin(),
               params.suppressed_until_min_tokens.end());
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (std::isinf(bias)) ids.insert(id);  // CheckSamplingParams refuses +inf
  }
  return ids;
}

}  // namespace

absl::StatusOr<SampledToken> SampleEmulated(uint64_t digest, int vocab_size,
                                            const SamplingParams& params, uint64_t index,
                                            std::span<const int32_t> prompt,
                                            std::span<const int32_t> output) {
  const auto ids = static_cast<uint64_t>(vocab_size);
  const std::set<int32_t> ruled_out = RuledOut(params, index);
  if (ruled_out.size() >= ids) return NoTokenLeft();
  const uint64_t edits = EditsOf(params, index, prompt, output);
  const uint64_t start = edits == 0 ? digest : Mix64(digest ^ edits);
  uint64_t token = (start % ids + DistanceOf(start, params, index, ids)) % ids;
  while (ruled_out.contains(static_cast<int32_t>(token))) token = (token + 1) % ids;
  if (params.top_logprobs < 0) return SampledToken{static_cast<int32_t>(token), 0.0f, {}};
  return EmulatedLogprobs(digest, vocab_size, static_cast<int32_t>(token), params.top_logprobs);
}

SampledToken EmulatedLogprobs(uint64_t digest, int vocab_size, int32_t token, int top_logprobs) {
  const auto ids = static_cast<uint64_t>(vocab_size);
  const float first = -static_cast<float>(Mix64(digest) >> 40) * 0x1p-24f;  // of the most likely
  const auto logprob = [&](uint64_t rank) {
    return first + kLogprobStep * static_cast<float>(rank);
  };
  const uint64_t start = digest % ids;
  SampledToken result{token, logprob((static_cast<uint64_t>(token) + ids - start) % ids), {}};
  const auto count = static_cast<uint64_t>(std::clamp(top_logprobs, 0, vocab_size));
  for (uint64_t rank = 0; rank < count; ++rank) {
    result.top.push_back({static_cast<int32_t>((start + rank) % ids), logprob(rank)});
  }
  return result;
}

void AnswerEmulated(const SequenceStep& sequence, int vocab_size, std::span<const uint64_t> digests,
                    SequenceResult* result) {
  const int top = sequence.sampling != nullptr ? sequence.sampling->top_logprobs : 0;
  for (size_t i = 0; i < sequence.next_tokens.size(); ++i) {
    const int32_t next = sequence.next_tokens[i];
    SampledToken unwanted;
    unwanted.token = -1;
    result->prompt_logprobs.push_back(
        next < 0 ? unwanted : EmulatedLogprobs(digests[i], vocab_size, next, top));
  }
  if (!sequence.sample) return;
  absl::StatusOr<SampledToken> sampled =
      SampleEmulated(digests.back(), vocab_size, *sequence.sampling, sequence.token_index,
                     sequence.prompt, sequence.output);
  if (sampled.ok()) {
    result->sampled = *std::move(sampled);
  } else {
    result->status = sampled.status();
  }
}

}  // namespace skein::engine
