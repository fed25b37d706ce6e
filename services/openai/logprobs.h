// OpenAI's two forms of logprobs. Internal to services/openai.
#pragma once

#include <string>

#include "services/openai/response.h"

namespace skein::services::openai {

// A choice's value of "logprobs": an object, or null if not requested.
std::string ChatLogprobs(const Choice& choice);        // {"content": [...], "refusal": null}
std::string CompletionLogprobs(const Choice& choice);  // {"text_offset", "token_logprobs", ...}

}  // namespace skein::services::openai
