#include <string>
#include <utility>

#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

constexpr std::string_view kPromptTypes =
    "a string, an array of strings, an array of token ids or an array of arrays of token ids";

ApiError EmptyPrompt() {
  return InvalidParam("prompt", "Invalid 'prompt': it must not be empty.", "empty_prompt");
}

// A list of token ids named `path`. False if it contains anything else.
bool ReadTokens(const Json& json, const std::string& path, Fields* fields,
                std::vector<int32_t>* out) {
  for (const Json& item : json) {
    int64_t token = -1;
    if (!AsInt(item, &token) || token < 0 || token > INT32_MAX) {
      fields->Fail(InvalidParam(path, "Invalid '" + path + "': expected an array of token ids."));
      return false;
    }
    out->push_back(static_cast<int32_t>(token));
  }
  return true;
}

// One element of a prompt array that is not an array of plain token ids.
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

void ReadBestOf(Fields* fields, GenerationOptions* options) {
  fields->Int("best_of", &options->best_of);
  if (options->best_of < options->n) {
    fields->Fail(InvalidParam("best_of", "Invalid 'best_of': " + std::to_string(options->best_of) +
                                             " is less than n, " + std::to_string(options->n) +
                                             "."));
  }
  if (options->best_of > options->n && options->stream) {
    fields->Fail(InvalidParam(
        "best_of",
        "Invalid 'best_of': with 'stream' it must equal 'n', because the best choice is only "
        "known at the end."));
  }
}

void LimitChoices(size_t prompts, const GenerationOptions& options, int64_t choices_max,
                  Fields* fields) {
  const int64_t choices = static_cast<int64_t>(prompts) * options.best_of;
  if (choices <= choices_max) return;
  const char* param = options.best_of > options.n ? "best_of" : "n";
  fields->Fail(InvalidParam(param, "Too many choices: prompts times '" + std::string(param) +
                                       "' are " + std::to_string(choices) +
                                       "; this server takes at most " +
                                       std::to_string(choices_max) + " (--max-choices)."));
}

}  // namespace

MaybeError Parse(std::string_view body, const ParseLimits& limits, CompletionRequest* request) {
  Json json;
  MaybeError error = ParseBody(body, "/v1/completions", limits.strict, &json, &request->notes);
  if (error) return error;
  Fields fields(json);
  GenerationOptions& options = request->options;
  fields.String("model", &request->model);
  ReadPrompts(&fields, &request->prompts);
  ReadOptions(&fields, &options);
  fields.Int("max_tokens", &options.max_tokens);
  std::optional<int64_t> logprobs;
  fields.Int("logprobs", &logprobs);
  options.top_logprobs = static_cast<int>(logprobs.value_or(-1));
  fields.Bool("echo", &request->echo);
  fields.Bool("add_special_tokens", &request->add_special_tokens);
  ReadBestOf(&fields, &options);
  LimitChoices(request->prompts.size(), options, limits.choices_max, &fields);
  return fields.error();
}

MaybeError Parse(std::string_view body, const ParseLimits& limits, TokenizeRequest* request) {
  Json json;
  if (MaybeError error = ParseBody(body, "/tokenize", limits.strict, &json, &request->notes)) {
    return error;
  }
  Fields fields(json);
  fields.String("model", &request->model);
  fields.Bool("return_token_strs", &request->return_token_strs);
  if (fields.Has("messages")) {
    ChatInput chat;
    ReadChatInput(&fields, &chat);
    request->add_special_tokens = false;  // the template contains them
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

MaybeError Parse(std::string_view body, const ParseLimits& limits, DetokenizeRequest* request) {
  Json json;
  if (MaybeError error = ParseBody(body, "/detokenize", limits.strict, &json, &request->notes)) {
    return error;
  }
  Fields fields(json);
  fields.String("model", &request->model);
  request->tokens = TokensOf(*fields.Find("tokens"));
  return fields.error();
}

}  // namespace skein::services::openai
