#include "services/openai/endpoint_parameters.h"

#include <string_view>

namespace skein::services::openai {
namespace {

constexpr double kCountMax = 1 << 30;
constexpr std::string_view kTextOnly = "only text is served.";
constexpr std::string_view kNoTools =
    "tool calls are not parsed from the model's output; omit it, or set 'tool_choice' to "
    "'none', which hides the tools from the model.";

Parameter Refused(std::string_view name, std::string_view openai, std::string_view vllm,
                  std::string_view why, std::string_view neutral = {},
                  std::string_view example = {}) {
  return {.name = name,
          .support = Support::kRefused,
          .openai = openai,
          .vllm = vllm,
          .meaning = why,
          .neutral = neutral,
          .example = example};
}

Parameter Ignored(std::string_view name, Type type, std::string_view why) {
  return {
      .name = name, .support = Support::kIgnored, .type = type, .openai = "yes", .meaning = why};
}

Parameter AnyModel() {
  return {.name = "model",
          .type = Type::kString,
          .fallback = "the only model",
          .vllm = "yes",
          .meaning = "Name of the model, as /v1/models lists it."};
}

}  // namespace

std::vector<Parameter> CompletionParameters() {
  return {
      {.name = "prompt",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "A string, an array of strings, an array of token ids, or an array of arrays of "
                  "token ids; an "
                  "empty string starts a new text.",
       .required = true,
       .example = R"("Once upon a time")"},
      {.name = "max_tokens",
       .type = Type::kInt,
       .low = 0,
       .high = kCountMax,
       .fallback = "16",
       .openai = "from 0",
       .vllm = "from 0",
       .meaning =
           "Maximum output length; prompt and output together must fit the model's context. 0 only "
           "scores the prompt (`echo`, `logprobs`)."},
      {.name = "logprobs",
       .type = Type::kInt,
       .low = 0,
       .high = 20,
       .fallback = "none",
       .openai = "0 to 5",
       .vllm = "0 to 20",
       .meaning = "Adds logprobs of the output's tokens and of this many most likely alternatives. "
                  "They are the model's own, before temperature, penalties and bias."},
      {.name = "echo",
       .type = Type::kBool,
       .fallback = "false",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "The text starts with the prompt, and the logprobs with the prompt's."},
      {.name = "best_of",
       .type = Type::kInt,
       .low = 1,
       .high = 128,
       .fallback = "`n`",
       .openai = "up to 20",
       .vllm = "formerly",
       .meaning = "Samples this many choices for each prompt and returns the `n` with the highest "
                  "logprob per token, the best first; an empty choice comes last. Not with "
                  "`stream`. Usage counts all choices."},
      Refused("suffix", "yes", "refused", "insertion is not served."),
  };
}

// The parameters of a chat; /tokenize takes them, too.
std::vector<Parameter> ChatInputParameters() {
  return {
      {.name = "messages",
       .type = Type::kArray,
       .openai = "yes",
       .vllm = "yes",
       .meaning = "The conversation, given to the model's chat template. Roles: system, developer "
                  "(as system), user, assistant, tool. Content: a string, or text parts, which "
                  "are joined by newlines. Null content is the empty string.",
       .required = true,
       .example = R"([{"role": "user", "content": "a"}])"},
      {.name = "add_generation_prompt",
       .type = Type::kBool,
       .fallback = "true",
       .vllm = "yes",
       .meaning = "The template starts the assistant's message."},
      {.name = "continue_final_message",
       .type = Type::kBool,
       .fallback = "false",
       .vllm = "yes",
       .meaning = "The output continues the last message."},
      {.name = "chat_template_kwargs",
       .type = Type::kObject,
       .fallback = "none",
       .vllm = "yes",
       .meaning = "Additional variables for the chat template, such as `enable_thinking`."},
      {.name = "documents",
       .type = Type::kArray,
       .fallback = "none",
       .vllm = "yes",
       .meaning = "Given to the chat template; most templates do not use it."},
      {.name = "reasoning_effort",
       .type = Type::kString,
       .fallback = "none",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Given to the chat template; most templates do not use it."},
      Refused("chat_template", "", "yes", "the model's own template is used."),
      {.name = "tools",
       .support = Support::kRefused,
       .type = Type::kArray,
       .openai = "yes",
       .vllm = "with a parser",
       .meaning = kNoTools,
       .neutral = "[[]]",
       .unless = R"({"tool_choice": "none"})",
       .example = R"([{"type": "function", "function": {"name": "f"}}])"},
      Refused("tool_choice", "yes", "with a parser", "only 'none' and 'auto' are served.",
              R"(["none", "auto"])", R"("required")"),
  };
}

std::vector<Parameter> ChatParameters() {
  return {
      {.name = "max_completion_tokens",
       .type = Type::kInt,
       .low = 1,
       .high = kCountMax,
       .fallback = "the model's max_new_tokens, else --default-max-tokens; at most the rest of "
                   "the context",
       .openai = "yes",
       .vllm = "yes",
       .meaning =
           "Maximum output length; prompt and output together must fit the model's context."},
      {.name = "max_tokens",
       .type = Type::kInt,
       .low = 1,
       .high = kCountMax,
       .fallback = "none",
       .openai = "deprecated",
       .vllm = "deprecated",
       .meaning = "The same; `max_completion_tokens` takes precedence."},
      {.name = "logprobs",
       .type = Type::kBool,
       .fallback = "false",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Adds logprobs of the output's tokens. They are the model's own, before "
                  "temperature, penalties and bias."},
      {.name = "top_logprobs",
       .type = Type::kInt,
       .low = 0,
       .high = 20,
       .fallback = "0",
       .openai = "0 to 20",
       .vllm = "0 to 20",
       .meaning = "Adds this many most likely alternatives; above 0 only with `logprobs`.",
       .needs = R"({"logprobs": true})"},
      {.name = "parallel_tool_calls",
       .support = Support::kIgnored,
       .type = Type::kBool,
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Tool calls are not supported."},
      {.name = "verbosity",
       .support = Support::kIgnored,
       .type = Type::kString,
       .openai = "yes",
       .meaning = "The models have no such setting; ask for it in a message."},
      Refused("functions", "deprecated", "", "use 'tools'."),
      Refused("function_call", "deprecated", "", "use 'tool_choice'.", R"(["none", "auto"])"),
      Refused("audio", "yes", "", kTextOnly),
      Refused("modalities", "yes", "", kTextOnly, R"([["text"]])", R"(["audio"])"),
      Refused("web_search_options", "yes", "", "web search is not served.", {},
              R"({"search_context_size": "low"})"),
      Refused("moderation", "yes", "", "outputs are not moderated."),
      Refused("media_io_kwargs", "", "yes", kTextOnly),
      Refused("mm_processor_kwargs", "", "yes", kTextOnly),
      Refused("echo", "", "yes", "use 'continue_final_message'.", {}, "true"),
      Refused("best_of", "", "formerly", "use /v1/completions.", "[1]"),
      Refused("include_reasoning", "", "yes", "reasoning is not separated from other output.",
              "[true]", "false"),
      Refused("separate_reasoning", "", "", "reasoning is not separated from other output.",
              "[false]", "true"),
      Refused("enable_thinking", "", "", "put it into 'chat_template_kwargs'.", "[]", "false"),
      Refused("return_prompt_text", "", "yes", "use 'return_token_ids' and /detokenize.", {},
              "true"),
  };
}

std::vector<Parameter> ResponseSamplingParameters() {
  std::vector<Parameter> rows;
  for (Parameter row : SamplingParameters()) {
    if (row.name == "stream") row.meaning = "Answers with typed events as tokens are produced.";
    for (const std::string_view name : {"model", "temperature", "top_p", "stream"}) {
      if (row.name == name) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<Parameter> ResponseParameters() {
  constexpr std::string_view kNotKept =
      "responses are not stored; send the whole conversation as 'input'.";
  return {
      {.name = "input",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "A string, or an array of messages: user, assistant, system, developer (as "
                  "system); content a string, or input_text and output_text parts, which are "
                  "joined by newlines. It is given to the model's chat template.",
       .required = true,
       .example = R"("a")"},
      {.name = "instructions",
       .type = Type::kString,
       .fallback = "none",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "A system message before the input."},
      {.name = "max_output_tokens",
       .type = Type::kInt,
       .low = 1,
       .high = kCountMax,
       .fallback = "as for max_completion_tokens",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Maximum output length. A text cut by it has the status 'incomplete'."},
      {.name = "text",
       .type = Type::kObject,
       .fallback = "none",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Only the format 'text'."},
      Refused("text.format", "yes", "yes", "only {\"type\": \"text\"} is served.",
              R"([{"type": "text"}])", R"({"type": "json_object"})"),
      Ignored("text.verbosity", Type::kString, "The models have no such setting."),
      Ignored("reasoning", Type::kObject, "The models have no such setting."),
      Ignored("parallel_tool_calls", Type::kBool, "Tool calls are not supported."),
      Ignored("stream_options", Type::kObject, "Events are never padded."),
      Refused("previous_response_id", "yes", "yes", kNotKept, {}, R"("resp_1")"),
      Refused("conversation", "yes", "", kNotKept, {}, R"("conv_1")"),
      Refused("background", "yes", "yes", kNotKept, {}, "true"),
      Refused("prompt", "yes", "", "prompts are not stored; send 'instructions' and 'input'.", {},
              R"({"id": "p"})"),
      Refused("tools", "yes", "with a parser", "tool calls are not parsed.", "[[]]",
              R"([{"type": "function", "name": "f"}])"),
      Refused("tool_choice", "yes", "with a parser", "only 'none' and 'auto' are served.",
              R"(["none", "auto"])", R"("required")"),
      Refused("max_tool_calls", "yes", "yes", "tool calls are not parsed.", {}, "1"),
      Refused("include", "yes", "yes", "no additional data can be included.", {},
              R"(["message.output_text.logprobs"])"),
      Refused("truncation", "yes", "yes", "shorten the input.", R"(["disabled"])", R"("auto")"),
      Refused("top_logprobs", "yes", "yes", "use /v1/chat/completions.", "[0]", "2"),
      Refused("context_management", "yes", "", "shorten the input."),
  };
}

// One of the two is required, so neither row is marked as required.
std::vector<Parameter> TokenizeParameters() {
  std::vector<Parameter> rows = {
      AnyModel(),
      {.name = "prompt",
       .type = Type::kString,
       .vllm = "yes",
       .meaning = "The text; either this or `messages`."},
      {.name = "return_token_strs",
       .type = Type::kBool,
       .fallback = "false",
       .vllm = "yes",
       .meaning = "Adds `token_strs`, the tokens as text."},
      {.name = "add_special_tokens",
       .type = Type::kBool,
       .fallback = "true; false for messages",
       .vllm = "yes",
       .meaning = "The tokenizer adds its special tokens."},
  };
  return rows;
}

std::vector<Parameter> TokenizeChatParameters() {
  std::vector<Parameter> rows = ChatInputParameters();
  for (Parameter& row : rows) {
    row.openai = {};
    row.required = false;
  }
  return rows;
}

std::vector<Parameter> DetokenizeParameters() {
  return {
      AnyModel(),
      {.name = "tokens",
       .type = Type::kTokenIds,
       .vllm = "yes",
       .meaning = "Ids of the model's vocabulary.",
       .required = true,
       .example = "[97]"},
  };
}

}  // namespace skein::services::openai
