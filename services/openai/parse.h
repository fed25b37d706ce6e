// The parts of request parsing that several endpoints share. Internal to services/openai.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "services/openai/fields.h"
#include "services/openai/request.h"

namespace skein::services::openai {

// The body as an object.
MaybeError ParseObject(std::string_view body, Json* json);

// Everything of GenerationOptions but max_tokens and top_logprobs.
void ReadOptions(const ParseLimits& limits, Fields* fields, GenerationOptions* options);

// A list of token ids named `path`; false when it holds anything else (the error is in `fields`).
bool ReadTokens(const Json& json, const std::string& path, Fields* fields,
                std::vector<int32_t>* out);

// messages, tools, tool_choice, chat_template_kwargs, ... of a chat.
void ReadChatInput(Fields* fields, ChatInput* input);

}  // namespace skein::services::openai
