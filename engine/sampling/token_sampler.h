// TokenSampler: samples tokens from logits where they are, on a device. (On the host that is
// Sampler and LogprobsOf, a row at a time.) Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/seen_ids.h"

namespace skein::engine {

// One row to sample from, or the logprob of a given token.
struct SampleRequest {
  int64_t row = 0;                         // of the logits
  const SamplingParams* params = nullptr;  // with a given token only its top_logprobs matter
  int32_t given = -1;                      // at least 0: this token, with its logprob
  uint64_t token_index = 0;                // of the sampled token in the output
  std::span<const int32_t> prompt;         // for penalties
  std::span<const int32_t> output;
  const SeenIds* seen = nullptr;  // not null: of these two; they need not be walked
};

class TokenSampler {
 public:
  virtual ~TokenSampler() = default;

  // Requests that one call may have.
  virtual int RequestsMax() const = 0;

  // Whether it can answer; what it cannot, the host does.
  virtual bool Takes(const SamplingParams& params) const = 0;

  // answers[i] is of requests[i]: INTERNAL when its logits hold NaN or +inf, INVALID_ARGUMENT when
  // its edits leave no token to sample. logits f32 [any, vocabulary], of the device. Returns when
  // the tokens are here, or the device's error. REQUIRES: Takes; parameters and ids in range, as
  // for Sampler.
  virtual absl::Status Sample(ConstMatrix logits, std::span<const SampleRequest> requests,
                              std::span<absl::StatusOr<SampledToken>> answers) = 0;
};

using MakeTokenSampler =
    std::function<absl::StatusOr<std::unique_ptr<TokenSampler>>(int vocab_size)>;

}  // namespace skein::engine
