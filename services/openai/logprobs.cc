#include "services/openai/logprobs.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "services/http/error.h"

namespace skein::services::openai {
namespace {

using http::JsonString;

// JSON has no infinities. A token that cannot be sampled gets -9999, as clients expect.
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

// `T`: TokenLogprob or TopLogprob.
template <typename T>
std::string NameOf(const Choice& choice, const T& token) {
  return choice.tokens_as_ids ? "token_id:" + std::to_string(token.token) : TokenText(token.bytes);
}

std::string ChatEntry(const std::string& name, const std::string& bytes,
                      const std::optional<float>& logprob) {
  return "{\"token\":" + JsonString(name) + ",\"logprob\":" + Number(logprob) +
         ",\"bytes\":" + Bytes(bytes);
}

// The n most likely tokens by name, and the token itself if it is not among them.
std::string TopObject(const Choice& choice, const TokenLogprob& token, size_t n) {
  if (!token.logprob.has_value()) return "null";
  std::string out = "{";
  std::set<std::string> seen;
  const auto add = [&](const std::string& name, float logprob) {
    if (!seen.insert(name).second) return;
    if (out.size() > 1) out += ',';
    out += JsonString(name) + ":" + Number(logprob);
  };
  for (size_t i = 0; i < std::min(n, token.top.size()); ++i) {
    add(NameOf(choice, token.top[i]), token.top[i].logprob);
  }
  add(NameOf(choice, token), *token.logprob);
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
              [&](const TokenLogprob& token) {
                std::string out = ChatEntry(NameOf(choice, token), token.bytes, token.logprob);
                out += ",\"top_logprobs\":[";
                for (size_t i = 0; i < std::min(n, token.top.size()); ++i) {
                  if (i > 0) out += ',';
                  const TopLogprob& top = token.top[i];
                  out += ChatEntry(NameOf(choice, top), top.bytes, top.logprob) + "}";
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
         List(tokens, [&](const Token& t) { return JsonString(NameOf(choice, t)); }) +
         ",\"top_logprobs\":" +
         List(tokens, [&](const Token& t) { return TopObject(choice, t, n); }) + "}";
}

}  // namespace skein::services::openai
