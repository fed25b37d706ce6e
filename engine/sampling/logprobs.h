// Log-probabilities of tokens under raw logits, as OpenAI and vLLM report them.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/softmax.h"

namespace skein::engine {

// `token` with its logprob and the `top_logprobs` most likely alternatives (0 or less: none).
// token in [0, logits.size()). INTERNAL when the logits hold NaN or +inf.
absl::StatusOr<SampledToken> LogprobsOf(std::span<const float> logits, int32_t token,
                                        int top_logprobs);

// A row of logits and what ScanLogits said of it.
struct ScannedLogits {
  std::span<const float> logits;
  std::span<const float> maxima;
  LogitScan scan;
};

// The same. REQUIRES: row.scan.usable.
SampledToken LogprobsOf(const ScannedLogits& row, int32_t token, int top_logprobs);

}  // namespace skein::engine
