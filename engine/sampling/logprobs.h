// Log-probabilities of tokens under raw logits, as OpenAI and vLLM report them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/sampling/sampling_params.h"

namespace skein::engine {

// `token` with its logprob and the `top_logprobs` most likely alternatives (0 or less: none).
// token in [0, logits.size()). INTERNAL when the logits hold NaN or +inf.
absl::StatusOr<SampledToken> LogprobsOf(std::span<const float> logits, int32_t token,
                                        int top_logprobs);

}  // namespace skein::engine
