// The rows of the API's description that all generating endpoints share.
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/openai/api_description.h"

namespace skein::services::openai {
namespace {

constexpr double kCountMax = 1 << 30;
constexpr double kPriorityMax = INT32_MAX;

Parameter Ignored(std::string_view name, Type type, std::string_view openai, std::string_view vllm,
                  std::string_view why) {
  return {.name = name,
          .support = Support::kIgnored,
          .type = type,
          .openai = openai,
          .vllm = vllm,
          .meaning = why};
}

// A boolean parameter; `needs` as in Parameter.
Parameter Switch(std::string_view name, std::string_view fallback, std::string_view openai,
                 std::string_view vllm, std::string_view meaning, std::string_view needs = {}) {
  return {.name = name,
          .type = Type::kBool,
          .fallback = fallback,
          .openai = openai,
          .vllm = vllm,
          .meaning = meaning,
          .needs = needs};
}

Parameter Refused(std::string_view name, std::string_view openai, std::string_view vllm,
                  std::string_view why, std::string_view neutral = {}) {
  return {.name = name,
          .support = Support::kRefused,
          .openai = openai,
          .vllm = vllm,
          .meaning = why,
          .neutral = neutral};
}

constexpr std::string_view kNoGrammar = "the form of the output cannot be constrained.";
constexpr std::string_view kNoSampler = "this sampler is not served.";
constexpr std::string_view kNoBeams = "beam search is not served.";
constexpr std::string_view kTextOnly = "only text is served.";

}  // namespace

std::vector<Parameter> SamplingParameters() {
  return {
      {.name = "model",
       .type = Type::kString,
       .openai = "required",
       .vllm = "default: the only model",
       .meaning = "Name of the model, as /v1/models lists it.",
       .required = true},
      {.name = "temperature",
       .type = Type::kNumber,
       .low = 0,
       .high = 2,
       .fallback = "the model's, else 1",
       .openai = "0 to 2",
       .vllm = "from 0",
       .meaning = "Divides the logits before sampling; 0 takes the most likely token."},
      {.name = "top_p",
       .type = Type::kNumber,
       .low = 0,
       .high = 1,
       .fallback = "the model's, else 1",
       .openai = "0 to 1",
       .vllm = "above 0 to 1",
       .meaning = "Samples from the smallest set of most likely tokens with this total "
                  "probability; 0 takes "
                  "the most likely token."},
      {.name = "top_k",
       .type = Type::kInt,
       .low = -1,
       .high = kCountMax,
       .fallback = "the model's, else 0",
       .vllm = "from -1",
       .meaning = "Samples from this many most likely tokens; 0 and -1: from all."},
      {.name = "min_p",
       .type = Type::kNumber,
       .low = 0,
       .high = 1,
       .fallback = "the model's, else 0",
       .vllm = "0 to 1",
       .meaning = "Drops tokens less likely than this times the most likely one."},
      {.name = "repetition_penalty",
       .type = Type::kNumber,
       .low = 0.001,
       .high = 100,
       .fallback = "the model's, else 1",
       .vllm = "above 0",
       .meaning = "Above 1: tokens of the prompt and the output become less likely."},
      {.name = "presence_penalty",
       .type = Type::kNumber,
       .low = -2,
       .high = 2,
       .fallback = "0",
       .openai = "-2 to 2",
       .vllm = "-2 to 2",
       .meaning = "Subtracted once from the logit of each token in the output."},
      {.name = "frequency_penalty",
       .type = Type::kNumber,
       .low = -2,
       .high = 2,
       .fallback = "0",
       .openai = "-2 to 2",
       .vllm = "-2 to 2",
       .meaning = "Subtracted from a token's logit for each of its occurrences in the output."},
      {.name = "logit_bias",
       .type = Type::kObject,
       .fallback = "none",
       .openai = "-100 to 100 by token id",
       .vllm = "by token id",
       .meaning =
           "Added to logits: numbers between -100 and 100 by token id, for up to 1024 tokens.",
       .example = R"({"5": -100})"},
      {.name = "seed",
       .type = Type::kInt64,
       .fallback = "random for each prompt",
       .openai = "best effort",
       .vllm = "for each request",
       .meaning = "Makes sampling repeatable. Choice i of `n` samples with a seed derived from it; "
                  "equal prompts of one request then give equal texts."},
      {.name = "n",
       .type = Type::kInt,
       .low = 1,
       .high = 128,
       .fallback = "1",
       .openai = "1 to 128",
       .vllm = "from 1",
       .meaning = "Choices for each prompt."},
      {.name = "priority",
       .type = Type::kInt,
       .low = -kPriorityMax,
       .high = kPriorityMax,
       .fallback = "the API key's, else 0",
       .vllm = "with its priority scheduling, else 0",
       .meaning = "How urgent the request is; a lower value goes first. An API key may name the "
                  "least that its requests may have. The most urgent are decoded by a bound group "
                  "(docs/formations.md)."},
      {.name = "min_tokens",
       .type = Type::kInt,
       .low = 0,
       .high = kCountMax,
       .fallback = "0",
       .vllm = "from 0",
       .meaning = "Minimum output length; nothing ends the output before.",
       .needs = R"({"max_tokens": 1073741824})"},
      {.name = "stop",
       .type = Type::kStrings,
       .fallback = "none",
       .openai = "up to 4",
       .vllm = "any number",
       .meaning = "Up to 16 strings of up to 1024 bytes that end the output; the text stops before "
                  "them.",
       .example = R"(["a", "b"])"},
      {.name = "stop_token_ids",
       .type = Type::kTokenIds,
       .fallback = "none",
       .vllm = "yes",
       .meaning = "Up to 128 tokens that end the output, in addition to the model's own."},
      Switch("include_stop_str_in_output", "false", "", "yes",
             "The text ends with the stop string that was found."),
      Switch("ignore_eos", "false", "", "yes",
             "The model's end-of-text tokens do not end the output."),
      Switch("skip_special_tokens", "true", "", "yes", "Special tokens have no text."),
      Switch("stream", "false", "yes", "yes",
             "Answers with server-sent events as tokens are produced; `data: [DONE]` ends them."),
      {.name = "stream_options",
       .type = Type::kObject,
       .fallback = "none",
       .openai = "yes",
       .vllm = "yes",
       .meaning = "Options of streaming; only with `stream`.",
       .needs = R"({"stream": true})",
       .example = "{}"},
      Switch("stream_options.include_usage", "false", "yes", "yes",
             "The last event has the usage and no choices; all others have `usage: null`.",
             R"({"stream": true})"),
      Switch("stream_options.continuous_usage_stats", "false", "", "yes",
             "With `include_usage`: each event has the usage so far.", R"({"stream": true})"),
      {.name = "stream_options.include_obfuscation",
       .support = Support::kIgnored,
       .type = Type::kBool,
       .openai = "yes",
       .meaning = "Events are never padded.",
       .needs = R"({"stream": true})"},
      Switch("return_token_ids", "false", "", "yes",
             "Adds `token_ids` to each choice and `prompt_token_ids`."),
      Switch("return_tokens_as_token_ids", "false", "", "yes",
             "Tokens in logprobs are written as `token_id:17`."),
      Switch("return_metrics", "false", "", "a flag of the server",
             "Adds `metrics` to the answer, or to a stream's last event: its times "
             "in milliseconds. With several choices: those of the one that ended last."),
      Switch("add_special_tokens", "true; false for chat", "", "yes",
             "The tokenizer adds its special tokens to the prompt. Chat templates write them "
             "themselves."),
  };
}

std::vector<Parameter> IgnoredParameters() {
  return {
      Ignored("user", Type::kString, "yes", "ignored", "No state is kept for each user."),
      Ignored("safety_identifier", Type::kString, "yes", "", "No state is kept for each user."),
      Ignored("metadata", Type::kObject, "yes", "", "Answers are not stored."),
      Ignored("store", Type::kBool, "yes", "", "Answers are not stored."),
      Ignored("service_tier", Type::kString, "yes", "", "All requests are served equally."),
      Ignored("prompt_cache_key", Type::kString, "yes", "", "There is no prefix cache."),
      Ignored("prompt_cache_retention", Type::kString, "yes", "", "There is no prefix cache."),
      Ignored("prompt_cache_options", Type::kObject, "yes", "", "There is no prefix cache."),
      Ignored("cache_salt", Type::kString, "", "yes", "There is no prefix cache."),
      Ignored("cache_prompt", Type::kBool, "", "", "There is no prefix cache (llama.cpp)."),
      Ignored("prediction", Type::kObject, "yes", "", "It can only change the speed of an answer."),
      Ignored("stream_interval", Type::kInt64, "", "yes",
              "Events are sent as soon as there is text."),
      Ignored("request_id", Type::kString, "", "yes", "Send the header X-Request-Id."),
      Ignored("rid", Type::kString, "", "", "Send the header X-Request-Id (SGLang)."),
      Ignored("session_id", Type::kString, "", "yes", "No state is kept for each session."),
      Ignored("spaces_between_special_tokens", Type::kBool, "", "yes",
              "Special tokens are written as the model's tokenizer writes them."),
      Ignored("return_token_offsets", Type::kBool, "", "ignored", "vLLM ignores it here, too."),
      Ignored("return_mm_kwargs", Type::kBool, "", "ignored", "vLLM ignores it here, too."),
      Ignored("mirostat_tau", Type::kNumber, "", "", "No effect without 'mirostat' (llama.cpp)."),
      Ignored("mirostat_eta", Type::kNumber, "", "", "No effect without 'mirostat' (llama.cpp)."),
      Ignored("xtc_threshold", Type::kNumber, "", "",
              "No effect without 'xtc_probability' (llama.cpp)."),
      Ignored("repeat_last_n", Type::kInt64, "", "",
              "No effect without 'repeat_penalty' (llama.cpp)."),
  };
}

std::vector<Parameter> RefusedParameters() {
  std::vector<Parameter> rows = {
      Refused("response_format", "yes", "yes", kNoGrammar, R"([{"type": "text"}])"),
      Refused("structured_outputs", "", "yes", kNoGrammar),
      Refused("guided_json", "", "formerly", kNoGrammar),
      Refused("guided_regex", "", "formerly", kNoGrammar),
      Refused("guided_choice", "", "formerly", kNoGrammar),
      Refused("guided_grammar", "", "formerly", kNoGrammar),
      Refused("guided_decoding_backend", "", "formerly", kNoGrammar),
      Refused("guided_whitespace_pattern", "", "formerly", kNoGrammar),
      Refused("structural_tag", "", "", kNoGrammar),
      Refused("grammar", "", "", kNoGrammar),
      Refused("json_schema", "", "", kNoGrammar),
      Refused("regex", "", "", kNoGrammar),
      Refused("ebnf", "", "", kNoGrammar),
      Refused("stop_regex", "", "", "use 'stop'."),
      Refused("bad_words", "", "yes", "use 'logit_bias'."),
      Refused("allowed_token_ids", "", "yes", "use 'logit_bias'."),
      Refused("logits_processors", "", "formerly", kNoSampler),
      Refused("custom_logit_processor", "", "", kNoSampler),
      Refused("custom_params", "", "", kNoSampler),
      Refused("use_beam_search", "", "yes", kNoBeams),
      Refused("length_penalty", "", "with beams", kNoBeams, "[1]"),
      Refused("early_stopping", "", "formerly", kNoBeams),
      Refused("typical_p", "", "", kNoSampler, "[1]"),
      Refused("tfs_z", "", "", kNoSampler, "[1]"),
      Refused("top_n_sigma", "", "", kNoSampler, "[-1]"),
      Refused("mirostat", "", "", kNoSampler, "[0]"),
      Refused("xtc_probability", "", "", kNoSampler, "[0]"),
      Refused("dry_multiplier", "", "", kNoSampler, "[0]"),
      Refused("dynatemp_range", "", "", kNoSampler, "[0]"),
      Refused("samplers", "", "", kNoSampler),
      Refused("repeat_penalty", "", "", "use 'repetition_penalty'.", "[1]"),
      Refused("watermarking", "", "yes", kNoSampler),
      Refused("repetition_detection", "", "yes", kNoSampler),
      Refused("thinking_token_budget", "", "yes",
              "thinking is not separated from other output; use 'max_tokens'.", "[-1]"),
      Refused("n_predict", "", "", "use 'max_tokens'.", "[-1]"),
      Refused("max_new_tokens", "", "", "use 'max_tokens'."),
      Refused("max_length", "", "", "use 'max_tokens'."),
      Refused("n_probs", "", "", "use 'logprobs'.", "[0]"),
      Refused("no_stop_trim", "", "", "use 'include_stop_str_in_output'."),
      Refused("detokenize", "", "formerly", "answers are always text; use 'return_token_ids'.",
              "[true]"),
      Refused("prompt_logprobs", "", "yes", "use 'echo' and 'logprobs' of /v1/completions."),
      Refused("logprob_token_ids", "", "yes", "use 'logprobs'."),
      Refused("return_hidden_states", "", "", "hidden states are not returned."),
      Refused("prompt_embeds", "", "yes", kTextOnly),
      Refused("truncate_prompt_tokens", "", "yes", "shorten the prompt."),
      Refused("truncation_side", "", "yes", "prompts are not truncated."),
      Refused("lora_path", "", "", "adapters are not served."),
      Refused("kv_transfer_params", "", "yes", "KV is handed over within the cluster."),
      Refused("ec_transfer_params", "", "yes", "KV is handed over within the cluster."),
      Refused("vllm_xargs", "", "yes", "there are no extensions."),
      Refused("routed_experts_prompt_start", "", "yes", "routed experts are not returned.", "[0]"),
      Refused("extra_body", "", "", "put its members into the body itself."),
  };
  rows.front().example = R"({"type": "json_object"})";
  for (Parameter& row : rows) {
    if (row.name == "detokenize") row.example = "false";
  }
  return rows;
}

}  // namespace skein::services::openai
