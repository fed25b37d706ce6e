// The two ways in which OpenAI writes logprobs. Internal to services/openai.
#pragma once

#include <string>

#include "services/openai/response.h"

namespace skein::services::openai {

// The value of "logprobs" of a choice: an object, or null when none were asked for.
std::string ChatLogprobs(const Choice& choice);        // {"content": [...], "refusal": null}
std::string CompletionLogprobs(const Choice& choice);  // {"text_offset", "token_logprobs", ...}

}  // namespace skein::services::openai
