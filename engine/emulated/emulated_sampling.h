// The tokens that EmulatedEngine samples, as arithmetic: every parameter that changes what a
// model's sampler would do changes the token.
//
// The digest of a sequence's tags stands for its logits: digest % vocab_size is the most likely id,
// then come those after it, cyclically. Edits (penalties with the counts that they are of, bias,
// suppression) move that start. Greedy sampling takes the start; else the distance from it is a
// hash of the start, of (seed, index) and of temperature, top_p and min_p, below top_k. Ids that
// are ruled out are passed over. Logprobs are of the digest before edits, as a model's are.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/sampling/sampling_params.h"

namespace skein::engine {

// The token at output index `index`, with its logprobs. `prompt` and `output` (the tokens sampled
// before) matter to penalties only. INVALID_ARGUMENT when no id is left to sample.
// REQUIRES: CheckSamplingParams is OK.
absl::StatusOr<SampledToken> SampleEmulated(uint64_t digest, int vocab_size,
                                            const SamplingParams& params, uint64_t index,
                                            std::span<const int32_t> prompt,
                                            std::span<const int32_t> output);

// `token` with its logprob, and the `top_logprobs` most likely ids (0 or less: none). `token` in
// [0, vocab_size).
SampledToken EmulatedLogprobs(uint64_t digest, int vocab_size, int32_t token, int top_logprobs);

// The result of a step's sequence: the logprobs of its next_tokens, and if it samples the token,
// from `digests`, those after each of its tokens.
void AnswerEmulated(const SequenceStep& sequence, int vocab_size, std::span<const uint64_t> digests,
                    SequenceResult* result);

}  // namespace skein::engine
