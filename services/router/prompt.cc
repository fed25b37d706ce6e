#include "services/router/prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/router/token_range.h"

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

// A text that has no tokens is continued from the beginning of one.
MaybeError StandInForNothing(const ServedModel& model, const char* param, PreparedPrompt* out) {
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

// Cuts what the template puts after the last message, so that the model goes on with it.
MaybeError CutAfterLastMessage(const openai::ChatInput& chat, std::string* text) {
  const Json& content = chat.messages.back()["content"];
  std::string last = content.is_string() ? content.get<std::string>() : "";
  last.erase(last.find_last_not_of(" \t\r\n") + 1);
  last.erase(0, std::min(last.find_first_not_of(" \t\r\n"), last.size()));
  const size_t at = last.empty() ? std::string::npos : text->rfind(last);
  if (at == std::string::npos) {
    return InvalidParam(
        "continue_final_message",
        "Invalid 'continue_final_message': the last message has no text to go on with.");
  }
  text->resize(at + last.size());
  return std::nullopt;
}

}  // namespace

MaybeError PreparePrompt(const ServedModel& model, const openai::Prompt& prompt,
                         bool add_special_tokens, PreparedPrompt* out) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    out->text = *text;
    out->tokens = model.tokenizer->Encode(*text, {.add_special_tokens = add_special_tokens});
  } else {
    out->tokens = std::get<std::vector<int32_t>>(prompt);
    if (MaybeError error = CheckTokenRange(model.known_tokens(), "prompt", out->tokens))
      return error;
    out->text = model.tokenizer->Decode(out->tokens, true);
  }
  if (MaybeError error = StandInForNothing(model, "prompt", out)) return error;
  FindTextStart(model, out);
  return std::nullopt;
}

MaybeError PrepareChat(const ServedModel& model, const openai::ChatInput& chat,
                       std::chrono::sys_seconds now, PreparedPrompt* out) {
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
  out->tokens = model.tokenizer->Encode(*text, {.add_special_tokens = chat.add_special_tokens});
  out->text = *std::move(text);
  if (MaybeError error = StandInForNothing(model, "messages", out)) return error;
  FindTextStart(model, out);
  return std::nullopt;
}

}  // namespace skein::services
