// A client's sampling parameters, and the sampler's answer for one token.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace skein::engine {

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy
  int top_k = 0;                    // 0 = off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most likely token
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over output
  float frequency_penalty = 0.0f;   // [-2, 2]; over output
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;      // with the token's index it fixes the choice, wherever the request runs
  int top_logprobs = -1;  // -1 none; 0 the chosen token's only; n > 0 also the n most likely
  std::vector<int32_t>
      suppressed_until_min_tokens;  // ids masked while index < min_tokens (EOS and stop ids)
  int min_tokens = 0;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

// One sampled token. Logprobs are of the model's distribution before temperature, penalties and
// truncation (log-softmax of the raw logits), as OpenAI and vLLM report them.
struct SampledToken {
  int32_t token = 0;
  float logprob = 0.0f;           // valid when top_logprobs ≥ 0
  std::vector<TokenLogprob> top;  // most likely first; ties by smaller id
};

}  // namespace skein::engine
