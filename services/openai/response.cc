#include "services/openai/response.h"

#include <cstdio>

#include "services/http/error.h"
#include "services/openai/logprobs.h"

namespace skein::services::openai {
namespace {

using http::JsonString;

std::string Field(std::string_view name, const std::string& json) {
  return ",\"" + std::string(name) + "\":" + json;
}

std::string TokenList(const std::vector<int32_t>& tokens) {
  std::string out = "[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(tokens[i]);
  }
  return out + "]";
}

std::string UsageJson(const Usage& usage) {
  return "{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         Field("completion_tokens", std::to_string(usage.completion_tokens)) +
         Field("total_tokens", std::to_string(usage.prompt_tokens + usage.completion_tokens)) +
         Field("prompt_tokens_details",
               "{\"cached_tokens\":" + std::to_string(usage.cached_tokens) + "}") +
         Field("completion_tokens_details", "{\"reasoning_tokens\":0}") + "}";
}

std::string Milliseconds(int64_t us) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.3f", static_cast<double>(us) * 1e-3);
  return buffer;
}

// ,"metrics":{...}
std::string MetricsField(const Metrics* metrics) {
  if (metrics == nullptr) return {};
  const int64_t gaps = metrics->output_tokens - 1;
  const bool has_first = metrics->ttft_us > 0;
  std::string out = "{\"time_to_first_token_ms\":";
  out += has_first ? Milliseconds(metrics->ttft_us) : "null";
  out += Field("queue_time_ms", Milliseconds(metrics->queue_us));
  out += Field("plan_time_ms", Milliseconds(metrics->plan_us));
  out += Field("prefill_time_ms", Milliseconds(metrics->prefill_us));
  out += Field("handoff_time_ms", Milliseconds(metrics->handoff_us));
  out += Field("generation_time_ms", Milliseconds(metrics->decode_us));
  out += Field("mean_itl_ms", gaps > 0 ? Milliseconds(metrics->decode_us / gaps) : "null");
  return Field("metrics", out + Field("total_time_ms", Milliseconds(metrics->total_us)) + "}");
}

std::string StopReasonJson(const StopReason& reason) {
  if (const auto* token = std::get_if<int32_t>(&reason)) return std::to_string(*token);
  if (const auto* text = std::get_if<std::string>(&reason)) return JsonString(*text);
  return "null";
}

// The start of the answer, up to and including "choices":[
std::string Begin(const Head& head, std::string_view object) {
  std::string out = "{\"id\":" + JsonString(head.id);
  out += Field("object", JsonString(object));
  out += Field("created", std::to_string(head.created));
  out += Field("model", JsonString(head.model));
  out += Field("system_fingerprint", JsonString(head.fingerprint));
  return out + ",\"choices\":[";
}

std::string_view ChunkObject(Kind kind) {
  return kind == Kind::kChat ? "chat.completion.chunk" : "text_completion";
}

// All of a choice; `content` is its "text", "message" or "delta" member. A stream's piece without a
// token has no logprobs.
std::string ChoiceJson(const Head& head, const Choice& choice, const std::string& content,
                       bool piece) {
  const bool chat = head.kind == Kind::kChat;
  std::string out = "{\"index\":" + std::to_string(choice.index) + content;
  const std::string logprobs = chat ? ChatLogprobs(choice) : CompletionLogprobs(choice);
  out += Field("logprobs", piece && choice.logprobs.empty() ? "null" : logprobs);
  const bool ended = !choice.finish_reason.empty();
  out += Field("finish_reason", ended ? JsonString(choice.finish_reason) : "null");
  if (ended) out += Field("stop_reason", StopReasonJson(choice.stop_reason));
  if (choice.with_token_ids) out += Field("token_ids", TokenList(choice.token_ids));
  if (choice.prompt_token_ids != nullptr && !chat) {
    out += Field("prompt_token_ids", TokenList(*choice.prompt_token_ids));
  }
  return out + "}";
}

std::string Event(const std::string& json) { return "data: " + json + "\n\n"; }

std::string ChunkEvent(const Head& head, const std::string& choice,
                       const std::vector<int32_t>* prompt_token_ids, const Usage* usage,
                       const Metrics* metrics = nullptr) {
  std::string out = Begin(head, ChunkObject(head.kind)) + choice + "]";
  if (head.kind == Kind::kChat && prompt_token_ids != nullptr) {
    out += Field("prompt_token_ids", TokenList(*prompt_token_ids));
  }
  if (usage != nullptr) {
    out += Field("usage", UsageJson(*usage));
  } else if (head.include_usage) {
    out += Field("usage", "null");
  }
  out += MetricsField(metrics);
  return Event(out + "}");
}

}  // namespace

std::string WholeAnswer(const Head& head, const std::vector<Choice>& choices, const Usage& usage,
                        const Metrics* metrics) {
  const bool chat = head.kind == Kind::kChat;
  std::string out = Begin(head, chat ? "chat.completion" : "text_completion");
  for (const Choice& choice : choices) {
    if (&choice != &choices.front()) out += ',';
    const std::string text = JsonString(choice.text);
    out += ChoiceJson(head, choice,
                      chat ? Field("message", "{\"role\":\"assistant\",\"content\":" + text +
                                                  ",\"refusal\":null}")
                           : Field("text", text),
                      /*piece=*/false);
  }
  out += "]" + Field("usage", UsageJson(usage)) + MetricsField(metrics);
  if (chat && !choices.empty() && choices.front().prompt_token_ids != nullptr) {
    out += Field("prompt_token_ids", TokenList(*choices.front().prompt_token_ids));
  }
  return out + "}";
}

std::string RoleEvent(const Head& head, int index, const Usage* usage) {
  Choice choice;
  choice.index = index;
  return ChunkEvent(
      head,
      ChoiceJson(head, choice, Field("delta", "{\"role\":\"assistant\",\"content\":\"\"}"),
                 /*piece=*/true),
      nullptr, usage);
}

std::string ChoiceEvent(const Head& head, const Choice& choice, const Usage* usage,
                        const Metrics* metrics) {
  const std::string text = JsonString(choice.text);
  std::string content = Field("text", text);
  if (head.kind == Kind::kChat) {
    content = Field("delta", choice.text.empty() ? "{}" : "{\"content\":" + text + "}");
  }
  return ChunkEvent(head, ChoiceJson(head, choice, content, /*piece=*/true),
                    choice.prompt_token_ids, usage, metrics);
}

std::string UsageEvent(const Head& head, const Usage& usage, const Metrics* metrics) {
  return Event(Begin(head, ChunkObject(head.kind)) + "]" + Field("usage", UsageJson(usage)) +
               MetricsField(metrics) + "}");
}

std::string ErrorEvent(const ApiError& error) {
  return Event(http::ErrorBody(error.status, error.message, error.param, error.code));
}

std::string ModelBody(const ModelCard& card) {
  return "{\"id\":" + JsonString(card.id) + Field("object", "\"model\"") +
         Field("created", std::to_string(card.created)) + Field("owned_by", "\"skein\"") +
         Field("root", JsonString(card.id)) +
         Field("max_model_len", std::to_string(card.max_model_len)) + "}";
}

std::string ModelListBody(const std::vector<ModelCard>& cards) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (const ModelCard& card : cards) {
    if (&card != &cards.front()) out += ',';
    out += ModelBody(card);
  }
  return out + "]}";
}

std::string TokenizeBody(const std::vector<int32_t>& tokens, int64_t max_model_len,
                         const std::vector<std::string>* strings) {
  std::string out = "{\"count\":" + std::to_string(tokens.size()) +
                    Field("max_model_len", std::to_string(max_model_len)) +
                    Field("tokens", TokenList(tokens)) + ",\"token_strs\":";
  if (strings == nullptr) return out + "null}";
  out += "[";
  for (const std::string& text : *strings) {
    if (&text != &strings->front()) out += ',';
    out += JsonString(TokenText(text));
  }
  return out + "]}";
}

std::string DetokenizeBody(std::string_view prompt) {
  return "{\"prompt\":" + JsonString(prompt) + "}";
}

std::string TokenText(std::string_view bytes) {
  if (http::IsUtf8(bytes)) return std::string(bytes);
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  return out;
}

}  // namespace skein::services::openai
