#include "services/router/generation/prompt.h"

#include <string.h>  // memmem

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/router/generation/token_range.h"

namespace skein::services {
namespace {

using openai::InvalidParam;
using openai::Json;
using openai::MaybeError;

void FindTextStart(const ServedModel& model, PreparedPrompt* out) {
  out->at_text_start = std::all_of(out->tokens.begin(), out->tokens.end(), [&model](int32_t token) {
    return model.tokenizer->IsSpecial(token);
  });
}

// An empty prompt becomes the token that begins a text.
MaybeError SubstituteBosIfEmpty(const ServedModel& model, const char* param, PreparedPrompt* out) {
  if (!out->tokens.empty()) return std::nullopt;
  std::optional<int32_t> start = model.tokenizer->bos_id();
  if (!start.has_value()) start = model.tokenizer->eos_id();
  if (!start.has_value()) {
    return InvalidParam(param, absl::StrCat("Invalid '", param, "': it has no tokens."),
                        "empty_prompt");
  }
  out->tokens = {*start};
  return std::nullopt;
}

Json TemplateContext(const ServedModel& model, const openai::ChatInput& chat) {
  Json context = chat.template_kwargs;
  context["messages"] = chat.messages;
  context["tools"] = nullptr;
  context["add_generation_prompt"] = chat.add_generation_prompt;
  const auto token = [](const std::optional<std::string>& text) {
    return text.has_value() ? Json(*text) : Json("");
  };
  context["bos_token"] = token(model.tokenizer->bos_token());
  context["eos_token"] = token(model.tokenizer->eos_token());
  return context;
}

// Where the last occurrence of `wanted` begins; npos if there is none. Linear in both lengths,
// unlike rfind: memmem searches the reversed text.
size_t FindLast(const std::string& text, const std::string& wanted) {
  const std::string back(text.rbegin(), text.rend());
  const std::string wanted_back(wanted.rbegin(), wanted.rend());
  const void* found = memmem(back.data(), back.size(), wanted_back.data(), wanted_back.size());
  if (found == nullptr) return std::string::npos;
  const auto end = static_cast<size_t>(static_cast<const char*>(found) - back.data());
  return text.size() - end - wanted.size();
}

// Cuts what the template puts after the last message, so that the model goes on with it.
MaybeError CutAfterLastMessage(const openai::ChatInput& chat, std::string* text) {
  const Json& content = chat.messages.back()["content"];
  std::string last = content.is_string() ? content.get<std::string>() : "";
  last.erase(last.find_last_not_of(" \t\r\n") + 1);
  last.erase(0, std::min(last.find_first_not_of(" \t\r\n"), last.size()));
  const size_t at = last.empty() ? std::string::npos : FindLast(*text, last);
  if (at == std::string::npos) {
    return InvalidParam(
        "continue_final_message",
        "Invalid 'continue_final_message': the last message has no text to continue.");
  }
  text->resize(at + last.size());
  return std::nullopt;
}

}  // namespace

MaybeError CheckBytes(const ServedModel& model, const std::string& param, const std::string& text,
                      int64_t tokens_max) {
  const int64_t least = model.tokenizer->LeastTokens(text);
  if (least <= tokens_max) return std::nullopt;
  return InvalidParam(param,
                      absl::StrCat("This server takes at most ", tokens_max,
                                   " tokens of this model. However, you requested at least ", least,
                                   " (", text.size(), " bytes of ", param,
                                   "). Please reduce the length of the ", param, "."),
                      "context_length_exceeded");
}

MaybeError CheckTokenCount(const std::string& param, size_t tokens, int64_t tokens_max) {
  if (static_cast<int64_t>(tokens) <= tokens_max) return std::nullopt;
  return InvalidParam(param,
                      absl::StrCat("This server takes at most ", tokens_max,
                                   " tokens of this model. However, you sent ", tokens, " in ",
                                   param, ". Please reduce the length of the ", param, "."),
                      "context_length_exceeded");
}

MaybeError PreparePrompt(const ServedModel& model, const openai::Prompt& prompt,
                         const PromptOptions& options, PreparedPrompt* out) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (MaybeError error = CheckBytes(model, "prompt", *text, options.tokens_max)) return error;
    if (options.with_text) out->text = *text;
    out->tokens =
        model.tokenizer->Encode(*text, {.add_special_tokens = options.add_special_tokens});
  } else {
    const auto& ids = std::get<std::vector<int32_t>>(prompt);
    if (MaybeError error = CheckTokenCount("prompt", ids.size(), options.tokens_max)) return error;
    if (MaybeError error = CheckTokenRange(model.vocab_size, "prompt", ids)) return error;
    out->tokens = ids;
    if (options.with_text) out->text = model.tokenizer->Decode(ids, true);
  }
  if (MaybeError error = SubstituteBosIfEmpty(model, "prompt", out)) return error;
  FindTextStart(model, out);
  return std::nullopt;
}

MaybeError PrepareChat(const ServedModel& model, const openai::ChatInput& chat,
                       std::chrono::sys_seconds now, int64_t tokens_max, PreparedPrompt* out) {
  if (!model.chat_template.has_value()) {
    return InvalidParam("model", absl::StrCat("The model '", model.name,
                                              "' has no chat template; use /v1/completions."));
  }
  engine::RenderOptions options;
  options.now = now;
  auto text = model.chat_template->Render(TemplateContext(model, chat), options);
  if (!text.ok()) {
    return InvalidParam("messages", absl::StrCat("The model's chat template refuses the messages: ",
                                                 text.status().message()));
  }
  if (chat.continue_final_message) {
    if (MaybeError error = CutAfterLastMessage(chat, &*text)) return error;
  }
  if (MaybeError error = CheckBytes(model, "messages", *text, tokens_max)) return error;
  out->tokens = model.tokenizer->Encode(*text, {.add_special_tokens = chat.add_special_tokens});
  out->text = *std::move(text);
  if (MaybeError error = SubstituteBosIfEmpty(model, "messages", out)) return error;
  FindTextStart(model, out);
  return std::nullopt;
}

}  // namespace skein::services
