#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/sampling/sample_errors.h"
#include "engine/sampling/sampler.h"

namespace skein::engine {
namespace {

absl::Status Bad(const char* field, double value, const char* range) {
  return absl::InvalidArgumentError(std::string(field) + " = " + std::to_string(value) +
                                    ": must be " + range);
}

// Written so that NaN is outside every range.
bool Within(float value, float low, float high) { return value >= low && value <= high; }

absl::Status CheckIds(const SamplingParams& params, int vocab_size) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) return Bad("logit_bias", id, "of a token in the vocabulary");
    if (!(bias < std::numeric_limits<float>::infinity())) {
      return Bad("logit_bias", bias, "a number below infinity");
    }
  }
  for (const int32_t id : params.suppressed_until_min_tokens) {
    if (id < 0 || id >= vocab_size) {
      return Bad("suppressed_until_min_tokens", id, "a token in the vocabulary");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSamplingParams(const SamplingParams& params, int vocab_size) {
  constexpr float kFloatMax = std::numeric_limits<float>::max();
  if (!Within(params.temperature, 0, kFloatMax)) {
    return Bad("temperature", params.temperature, "at least 0");
  }
  if (params.top_k < 0) return Bad("top_k", params.top_k, "at least 0");
  if (!Within(params.top_p, 0, 1) || params.top_p == 0) {
    return Bad("top_p", params.top_p, "in (0, 1]");
  }
  if (!Within(params.min_p, 0, 1)) return Bad("min_p", params.min_p, "in [0, 1]");
  if (!Within(params.repetition_penalty, 0, kFloatMax) || params.repetition_penalty == 0) {
    return Bad("repetition_penalty", params.repetition_penalty, "above 0");
  }
  if (!Within(params.presence_penalty, -2, 2)) {
    return Bad("presence_penalty", params.presence_penalty, "in [-2, 2]");
  }
  if (!Within(params.frequency_penalty, -2, 2)) {
    return Bad("frequency_penalty", params.frequency_penalty, "in [-2, 2]");
  }
  if (params.top_logprobs < -1) return Bad("top_logprobs", params.top_logprobs, "at least -1");
  if (params.min_tokens < 0) return Bad("min_tokens", params.min_tokens, "at least 0");
  return CheckIds(params, vocab_size);
}

absl::Status CheckTokenLeft(const SamplingParams& params, int vocab_size) {
  const auto vocabulary = static_cast<size_t>(vocab_size);
  const bool suppresses = params.min_tokens > 0;
  const size_t suppressed = suppresses ? params.suppressed_until_min_tokens.size() : 0;
  if (suppressed + params.logit_bias.size() < vocabulary) return absl::OkStatus();
  std::vector<bool> ruled_out(vocabulary, false);
  for (size_t i = 0; i < suppressed; ++i) {
    ruled_out[static_cast<size_t>(params.suppressed_until_min_tokens[i])] = true;
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (std::isinf(bias)) ruled_out[static_cast<size_t>(id)] = true;
  }
  const bool left = std::find(ruled_out.begin(), ruled_out.end(), false) != ruled_out.end();
  return left ? absl::OkStatus() : NoTokenLeft();
}

}  // namespace skein::engine
