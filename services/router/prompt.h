// From what a client wrote to the token ids that the cluster is given.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "services/openai/api_error.h"
#include "services/openai/request.h"
#include "services/router/model.h"

namespace skein::services {

struct PreparedPrompt {
  std::vector<int32_t> tokens;  // at least one
  std::string text;             // what `echo` repeats
  // No token of the prompt is text, so the answer begins a text.
  bool at_text_start = false;
};

openai::MaybeError PreparePrompt(const ServedModel& model, const openai::Prompt& prompt,
                                 bool add_special_tokens, PreparedPrompt* out);

// Renders the model's chat template. `now` is what the template takes for the time of day.
openai::MaybeError PrepareChat(const ServedModel& model, const openai::ChatInput& chat,
                               std::chrono::sys_seconds now, PreparedPrompt* out);

}  // namespace skein::services
