#include <string>
#include <utility>

#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

constexpr int64_t kCountMax = 1 << 30;
constexpr std::string_view kPromptTypes =
    "a string, an array of strings, an array of token ids or an array of arrays of token ids";

ApiError EmptyPrompt() {
  return InvalidParam("prompt", "Invalid 'prompt': it must not be empty.", "empty_prompt");
}

// One element of a prompt array that does not hold plain token ids.
bool ReadPromptItem(const Json& item, const std::string& path, Fields* fields, Prompt* prompt) {
  if (item.is_string()) {
    *prompt = item.get_ref<const std::string&>();
    return true;
  }
  std::vector<int32_t> tokens;
  if (!item.is_array()) {
    fields->WrongType("prompt", kPromptTypes);
    return false;
  }
  if (!ReadTokens(item, path, fields, &tokens)) return false;
  if (tokens.empty()) fields->Fail(EmptyPrompt());
  *prompt = std::move(tokens);
  return true;
}

void ReadPrompts(Fields* fields, std::vector<Prompt>* prompts) {
  const Json* json = fields->Find("prompt");
  if (json == nullptr) {
    return fields->Fail(InvalidParam("prompt", "Missing required parameter: 'prompt'.",
                                     "missing_required_parameter"));
  }
  if (json->is_string()) {
    prompts->push_back(json->get_ref<const std::string&>());
    return;
  }
  if (!json->is_array()) return fields->WrongType("prompt", kPromptTypes);
  if (json->empty()) return fields->Fail(EmptyPrompt());
  if (json->front().is_number()) {
    std::vector<int32_t> tokens;
    if (ReadTokens(*json, "prompt", fields, &tokens)) prompts->push_back(std::move(tokens));
    return;
  }
  for (size_t i = 0; i < json->size(); ++i) {
    Prompt prompt;
    if (!ReadPromptItem((*json)[i], "prompt[" + std::to_string(i) + "]", fields, &prompt)) return;
    prompts->push_back(std::move(prompt));
  }
}

}  // namespace

MaybeError Parse(std::string_view body, const ParseLimits& limits, CompletionRequest* request) {
  Json json;
  if (MaybeError error = ParseObject(body, &json)) return error;
  Fields fields(json);
  GenerationOptions& options = request->options;
  fields.String("model", &request->model);
  ReadPrompts(&fields, &request->prompts);
  ReadOptions(limits, &fields, &options);
  fields.Int("max_tokens", 0, kCountMax, &options.max_tokens);
  std::optional<int64_t> logprobs, best_of;
  fields.Int("logprobs", 0, kTopLogprobsMax, &logprobs);
  options.top_logprobs = static_cast<int>(logprobs.value_or(-1));
  fields.Bool("echo", &request->echo);
  fields.Bool("add_special_tokens", &request->add_special_tokens);
  fields.Int("best_of", 0, kCountMax, &best_of);
  if (best_of.has_value() && *best_of != options.n) {
    fields.Fail(Unsupported("best_of", "it must equal 'n'."));
  }
  fields.RefuseIfSet("suffix", "insertion is not served.");
  const auto choices = static_cast<int64_t>(request->prompts.size()) * options.n;
  if (choices > limits.choices_max) {
    fields.Fail(InvalidParam("n", "Too many choices: prompts times 'n' may be " +
                                      std::to_string(limits.choices_max) + " at the most."));
  }
  return fields.error();
}

MaybeError Parse(std::string_view body, TokenizeRequest* request) {
  Json json;
  if (MaybeError error = ParseObject(body, &json)) return error;
  Fields fields(json);
  fields.String("model", &request->model);
  fields.Bool("return_token_strs", &request->return_token_strs);
  if (fields.Has("messages")) {
    ChatInput chat;
    ReadChatInput(&fields, &chat);
    request->add_special_tokens = false;  // the template writes them
    request->input = std::move(chat);
  } else if (fields.Has("prompt")) {
    std::string prompt;
    fields.String("prompt", &prompt);
    request->input = std::move(prompt);
  } else {
    fields.Fail(InvalidParam("prompt", "Missing required parameter: 'prompt' or 'messages'.",
                             "missing_required_parameter"));
  }
  fields.Bool("add_special_tokens", &request->add_special_tokens);
  return fields.error();
}

MaybeError Parse(std::string_view body, DetokenizeRequest* request) {
  Json json;
  if (MaybeError error = ParseObject(body, &json)) return error;
  Fields fields(json);
  fields.String("model", &request->model);
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr) {
    fields.Fail(InvalidParam("tokens", "Missing required parameter: 'tokens'.",
                             "missing_required_parameter"));
  } else if (!tokens->is_array()) {
    fields.WrongType("tokens", "an array of token ids");
  } else {
    ReadTokens(*tokens, "tokens", &fields, &request->tokens);
  }
  return fields.error();
}

}  // namespace skein::services::openai
