// Why one row cannot be sampled: the same words from every sampler.
#pragma once

#include "absl/status/status.h"

namespace skein::engine {

// The model's fault: INTERNAL.
inline absl::Status BadLogits() { return absl::InternalError("logits hold NaN or infinity"); }

// The request's fault: INVALID_ARGUMENT.
inline absl::Status NoTokenLeft() {
  return absl::InvalidArgumentError(
      "logit_bias, or stop_token_ids until min_tokens, leave no token to sample");
}

}  // namespace skein::engine
