#include "services/openai/logprobs.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "services/http/error.h"

namespace skein::services::openai {
namespace {

using http::JsonString;

// JSON has no infinities; a token that cannot be drawn gets the -9999 that clients know.
std::string Number(float logprob) {
  char buffer[32];
  const float value = logprob >= -9999.0f ? std::min(logprob, 0.0f) : -9999.0f;
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

std::string Number(const std::optional<float>& logprob) {
  return logprob.has_value() ? Number(*logprob) : "null";
}

std::string Bytes(const std::string& bytes) {
  std::string out = "[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<unsigned char>(bytes[i]));
  }
  return out + "]";
}

std::string ChatEntry(const std::string& bytes, const std::optional<float>& logprob) {
  return "{\"token\":" + JsonString(TokenText(bytes)) + ",\"logprob\":" + Number(logprob) +
         ",\"bytes\":" + Bytes(bytes);
}

// The n most likely by their text, and the token itself, which may not be among them.
std::string TopObject(const TokenLogprob& token, size_t n) {
  if (!token.logprob.has_value()) return "null";
  std::string out = "{";
  std::set<std::string> seen;
  const auto add = [&](const std::string& bytes, float logprob) {
    const std::string text = TokenText(bytes);
    if (!seen.insert(text).second) return;
    if (out.size() > 1) out += ',';
    out += JsonString(text) + ":" + Number(logprob);
  };
  for (size_t i = 0; i < std::min(n, token.top.size()); ++i) {
    add(token.top[i].bytes, token.top[i].logprob);
  }
  add(token.bytes, *token.logprob);
  return out + "}";
}

template <typename F>
std::string List(const std::vector<TokenLogprob>& tokens, F f) {
  std::string out = "[";
  for (const TokenLogprob& token : tokens) {
    if (out.size() > 1) out += ',';
    out += f(token);
  }
  return out + "]";
}

}  // namespace

std::string ChatLogprobs(const Choice& choice) {
  if (!choice.with_logprobs) return "null";
  const auto n = static_cast<size_t>(std::max(0, choice.top_logprobs));
  return "{\"content\":" +
         List(choice.logprobs,
              [n](const TokenLogprob& token) {
                std::string out = ChatEntry(token.bytes, token.logprob);
                out += ",\"top_logprobs\":[";
                for (size_t i = 0; i < std::min(n, token.top.size()); ++i) {
                  if (i > 0) out += ',';
                  out += ChatEntry(token.top[i].bytes, token.top[i].logprob) + "}";
                }
                return out + "]}";
              }) +
         ",\"refusal\":null}";
}

std::string CompletionLogprobs(const Choice& choice) {
  if (!choice.with_logprobs) return "null";
  const auto n = static_cast<size_t>(std::max(0, choice.top_logprobs));
  const auto& tokens = choice.logprobs;
  using Token = TokenLogprob;
  return "{\"text_offset\":" +
         List(tokens, [](const Token& t) { return std::to_string(t.text_offset); }) +
         ",\"token_logprobs\":" + List(tokens, [](const Token& t) { return Number(t.logprob); }) +
         ",\"tokens\":" +
         List(tokens, [](const Token& t) { return JsonString(TokenText(t.bytes)); }) +
         ",\"top_logprobs\":" + List(tokens, [n](const Token& t) { return TopObject(t, n); }) + "}";
}

}  // namespace skein::services::openai
