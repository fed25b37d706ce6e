// Requests of the OpenAI API, with vLLM's extensions, as plain values.
//
// Parsing checks every type and every range and names the parameter at fault. Parameters that would
// change the answer and are not served are refused by name; unknown ones are accepted and ignored,
// as other OpenAI-compatible servers do, so that clients newer than this server work.
// Where this differs from OpenAI: `stop` takes up to 16 strings, `logprobs` of /v1/completions up
// to 20, and `n` up to ParseLimits::choices_max.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/openai/api_error.h"

namespace skein::services::openai {

using Json = nlohmann::ordered_json;

struct ParseLimits {
  int64_t choices_max = 128;  // prompts × n of one request
};

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1024;
inline constexpr int kTopLogprobsMax = 20;

// What both endpoints have. Sampling values are absent where the model's default holds.
struct GenerationOptions {
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;

  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;  // 0: off
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<int64_t> seed;
  int top_logprobs = -1;  // -1: no logprobs; otherwise how many alternatives

  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
};

// Text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;
  GenerationOptions options;
};

// What a chat template is given.
struct ChatInput {
  Json messages = Json::array();  // content: text, or null; tool call arguments: objects
  Json tools;                     // null when there are none
  Json template_kwargs = Json::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;  // the template writes them itself
};

struct ChatRequest {
  std::string model;
  ChatInput input;
  GenerationOptions options;
};

struct TokenizeRequest {
  std::string model;  // may be empty: the only model served
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

MaybeError Parse(std::string_view body, const ParseLimits& limits, CompletionRequest* request);
MaybeError Parse(std::string_view body, const ParseLimits& limits, ChatRequest* request);
MaybeError Parse(std::string_view body, TokenizeRequest* request);
MaybeError Parse(std::string_view body, DetokenizeRequest* request);

}  // namespace skein::services::openai
