// Formats answers of the OpenAI API: whole bodies and server-sent events. Field order and shapes
// are OpenAI's; `stop_reason`, `token_ids` and `prompt_token_ids` are vLLM's additions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "services/openai/api_error.h"

namespace skein::services::openai {

enum class Kind { kCompletion, kChat };

// The members that all events of one answer repeat.
struct Head {
  Kind kind = Kind::kCompletion;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;
  bool include_usage = false;  // stream: every event has "usage", null except in the last one
};

struct TopLogprob {
  std::string bytes;  // of the token; not always UTF-8
  float logprob = 0;
  int32_t token = 0;
};

struct TokenLogprob {
  std::string bytes;
  std::optional<float> logprob;  // none for the first token of a prompt
  std::vector<TopLogprob> top;   // most likely first
  int64_t text_offset = 0;       // characters of the choice's text before the token
  int32_t token = 0;
};

// Why a choice ended: no reason, a stop token's id, or a stop string.
using StopReason = std::variant<std::monostate, int32_t, std::string>;

// One choice of an answer, or one event's addition to it.
struct Choice {
  int index = 0;
  std::string text;
  std::string finish_reason;  // "stop", "length"; "" while it continues
  StopReason stop_reason;
  bool with_logprobs = false;
  int top_logprobs = 0;        // number of alternatives requested
  bool tokens_as_ids = false;  // logprobs name tokens "token_id:17", not their text
  std::vector<TokenLogprob> logprobs;
  bool with_token_ids = false;
  std::vector<int32_t> token_ids;
  const std::vector<int32_t>* prompt_token_ids = nullptr;  // written if set
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens found in a cache and not computed
};

// The times of an answer, in microseconds here. The answer gives milliseconds, under the names of
// vLLM's `metrics`.
struct Metrics {
  int64_t queue_us = 0;    // waiting for its first step; includes plan_us
  int64_t plan_us = 0;     // the orchestrator's planning
  int64_t prefill_us = 0;  // from the first step to the end of the last
  int64_t handoff_us = 0;  // from there until its KV was at the decode instance
  int64_t ttft_us = 0;     // from the request's arrival to the first token; 0: no token came
  int64_t decode_us = 0;   // from the first token to the last
  int64_t total_us = 0;    // from the request's arrival to the end
  int64_t output_tokens = 0;
};

// `metrics`: null omits it, here and below.
std::string WholeAnswer(const Head& head, const std::vector<Choice>& choices, const Usage& usage,
                        const Metrics* metrics = nullptr);

// "data: {...}\n\n" each. `usage`: so far; null omits it, or writes null with head.include_usage.
std::string RoleEvent(const Head& head, int index,  // the first one of a chat's choice
                      const Usage* usage = nullptr);
std::string ChoiceEvent(const Head& head, const Choice& choice, const Usage* usage = nullptr,
                        const Metrics* metrics = nullptr);
std::string UsageEvent(const Head& head, const Usage& usage, const Metrics* metrics = nullptr);
std::string ErrorEvent(const ApiError& error);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

struct ModelCard {
  std::string id;
  int64_t created = 0;
  int64_t max_model_len = 0;
};

std::string ModelBody(const ModelCard& card);
std::string ModelListBody(const std::vector<ModelCard>& cards);

// `strings`: also the tokens' bytes as text (vLLM's token_strs); may be null.
std::string TokenizeBody(const std::vector<int32_t>& tokens, int64_t max_model_len,
                         const std::vector<std::string>* strings);
std::string DetokenizeBody(std::string_view prompt);

// A token as text: itself, or "bytes:\xe2\x80" when it is not UTF-8 on its own.
std::string TokenText(std::string_view bytes);

}  // namespace skein::services::openai
