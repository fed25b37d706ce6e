// From a client's options to the specs that the cluster is given: one per choice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/base/request.h"
#include "services/openai/request.h"
#include "services/openai/response.h"
#include "services/router/model/model.h"
#include "services/rpc/message_limits.h"

namespace skein::services {

// A prompt travels in one message, 4 bytes a token, on a stream that other requests share. One that
// is too large would end that stream. The rest of the message needs far less than 1 MiB.
inline constexpr int64_t kPromptTokensMax = (kMessageBytesMax - (1 << 20)) / 4;

struct LengthLimits {
  int64_t max_positions = 0;      // of prompt and output together
  int64_t max_prompt_tokens = 0;  // 0: no further bound
  // Of a chat's output where the client does not say; at most what is left of the context.
  int64_t default_max_tokens = INT64_MAX;

  int64_t prompt_tokens_max() const {
    const int64_t most = std::min(max_positions, kPromptTokensMax);
    return max_prompt_tokens > 0 ? std::min(max_prompt_tokens, most) : most;
  }
};

// How many tokens may be sampled after a prompt of that many tokens: the client's max_tokens, else
// 16 for completions and the limits' default for chats, as far as the context goes. 400
// context_length_exceeded names the model's length when prompt and max_tokens do not fit.
openai::MaybeError ResolveMaxTokens(openai::Kind kind, const openai::GenerationOptions& options,
                                    const LengthLimits& limits, int64_t prompt_tokens,
                                    int64_t* max_tokens);

// 400 where the logprobs of the prompt, with `top` alternatives for each token, would not fit the
// message in which they travel.
openai::MaybeError CheckPromptLogprobs(int64_t prompt_tokens, int top);

// 400 for token ids the model does not have.
openai::MaybeError CheckTokenIds(const ServedModel& model,
                                 const openai::GenerationOptions& options);

// The seed of choice `index` of a prompt with `seed`: choice 0 samples as a request with n = 1
// does.
uint64_t ChoiceSeed(uint64_t seed, int index);

// The spec of choice `index` of one prompt; its id is the caller's.
std::shared_ptr<scheduler::RequestSpec> MakeSpec(const ServedModel& model,
                                                 const openai::GenerationOptions& options,
                                                 const std::vector<int32_t>& prompt,
                                                 int64_t max_tokens, uint64_t seed, int index,
                                                 bool want_prompt_logprobs);

// The further choices of each prompt, which follow its first one, share the KV of its prompt,
// unless nothing is sampled. REQUIRES: they have their ids.
void SharePrompts(int choices, std::vector<std::shared_ptr<scheduler::RequestSpec>>* specs);

}  // namespace skein::services
