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

// The body as an object that holds to the description of `path`.
MaybeError ParseBody(std::string_view body, std::string_view path, bool strict, Json* json,
                     BodyNotes* notes);

// The rest reads bodies that ParseBody has checked.

// Everything of GenerationOptions but max_tokens and top_logprobs.
void ReadOptions(Fields* fields, GenerationOptions* options);

std::vector<int32_t> TokensOf(const Json& json);

// messages, chat_template_kwargs, ... of a chat.
void ReadChatInput(Fields* fields, ChatInput* input);

}  // namespace skein::services::openai
