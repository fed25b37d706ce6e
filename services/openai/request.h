// Requests of the OpenAI API, with vLLM's extensions, as plain values.
//
// Parsing checks a body against the API's description (api_description.h) and names the parameter
// at fault. Unsupported parameters that would change the answer are refused by name. Unknown
// parameters are noted, so that newer clients work, or refused with ParseLimits::strict.
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
#include "services/openai/body_check.h"

namespace skein::services::openai {

using Json = nlohmann::ordered_json;

struct ParseLimits {
  int64_t choices_max = 128;  // prompts × best_of (or n) of one request
  bool strict = false;        // unknown parameters are errors
};

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 1024;
// Each choice's spec carries these lists, and each step searches them.
inline constexpr size_t kStopTokenIdsMax = 128;
inline constexpr size_t kLogitBiasMax = 1024;

// The parameters of both endpoints. An absent sampling value means the model's default.
struct GenerationOptions {
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  int64_t n = 1;
  int64_t best_of = 1;              // choices sampled for each prompt; at least n
  std::optional<int64_t> priority;  // lower is more urgent; fits 32 bits, and so does its negative
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // every event has the usage so far

  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;  // 0: off
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<int64_t> seed;
  int top_logprobs = -1;  // -1: no logprobs; otherwise number of alternatives

  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  bool return_metrics = false;  // the answer includes its times
  bool tokens_as_ids = false;   // tokens in logprobs are written "token_id:17"
};

// Text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;
  GenerationOptions options;
  BodyNotes notes;
};

// The input of a chat template.
struct ChatInput {
  Json messages = Json::array();  // content: text; tool call arguments: objects
  Json template_kwargs = Json::object();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;  // the template contains them
};

struct ChatRequest {
  std::string model;
  ChatInput input;
  GenerationOptions options;
  BodyNotes notes;
};

struct TokenizeRequest {
  std::string model;  // may be empty: the only model served
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;
  bool return_token_strs = false;
  BodyNotes notes;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  BodyNotes notes;
};

MaybeError Parse(std::string_view body, const ParseLimits& limits, CompletionRequest* request);
MaybeError Parse(std::string_view body, const ParseLimits& limits, ChatRequest* request);
MaybeError Parse(std::string_view body, const ParseLimits& limits, TokenizeRequest* request);
MaybeError Parse(std::string_view body, const ParseLimits& limits, DetokenizeRequest* request);

}  // namespace skein::services::openai
