// From what a client wrote to the token ids that the cluster is given.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "services/openai/api_error.h"
#include "services/openai/request.h"
#include "services/router/model/model.h"

namespace skein::services {

struct PreparedPrompt {
  std::vector<int32_t> tokens;  // at least one
  std::string text;             // of a chat, or if PromptOptions::with_text: what `echo` repeats
  // No token of the prompt is text, so the answer begins a text.
  bool at_text_start = false;
};

// 400 context_length_exceeded where the bytes of `text` alone prove that it has more than
// `tokens_max` tokens: much cheaper than tokenizing it. `param` is named in the error.
openai::MaybeError CheckBytes(const ServedModel& model, const std::string& param,
                              const std::string& text, int64_t tokens_max);

// The same for token ids, before anything is made of them.
openai::MaybeError CheckTokenCount(const std::string& param, size_t tokens, int64_t tokens_max);

struct PromptOptions {
  bool add_special_tokens = true;
  bool with_text = false;  // it is echoed
  int64_t tokens_max = 0;
};

// Each refuses at once what CheckBytes and CheckTokenCount do; a text that has more than
// `tokens_max` tokens all the same is the caller's to refuse.
openai::MaybeError PreparePrompt(const ServedModel& model, const openai::Prompt& prompt,
                                 const PromptOptions& options, PreparedPrompt* out);

// Renders the model's chat template. `now` is what the template takes for the time of day.
openai::MaybeError PrepareChat(const ServedModel& model, const openai::ChatInput& chat,
                               std::chrono::sys_seconds now, int64_t tokens_max,
                               PreparedPrompt* out);

}  // namespace skein::services
