// Request parsing shared by several endpoints. Internal to services/openai.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "services/openai/fields.h"
#include "services/openai/request.h"

namespace skein::services::openai {

// The body as an object.
MaybeError ParseObject(std::string_view body, Json* json);

// The body as an object that matches the description of `path`.
MaybeError ParseBody(std::string_view body, std::string_view path, bool strict, Json* json,
                     BodyNotes* notes);

// The functions below read bodies that ParseBody has checked.

// All of GenerationOptions except max_tokens and top_logprobs.
void ReadOptions(Fields* fields, GenerationOptions* options);

std::vector<int32_t> TokensOf(const Json& json);

// messages, chat_template_kwargs, ... of a chat.
void ReadChatInput(Fields* fields, ChatInput* input);

}  // namespace skein::services::openai
