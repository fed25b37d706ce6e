#include "services/skeinctl/chaos/stream_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::json;

constexpr int kOk = 200;
constexpr size_t kMessageKept = 300;
constexpr int64_t kChoicesMax = 128;  // as the API allows

std::string StringAt(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// Empty if there is none.
Json ArrayAt(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_array() ? *it : Json::array();
}

// Of a completion, of a chat's stream, or of a chat.
std::string TextOf(const Json& choice) {
  for (const char* key : {"delta", "message"}) {
    if (const auto it = choice.find(key); it != choice.end()) return StringAt(*it, "content");
  }
  return StringAt(choice, "text");
}

void ReadLogprobs(const Json& choice, std::vector<double>* logprobs) {
  const auto it = choice.find("logprobs");
  if (it == choice.end() || !it->is_object()) return;
  for (const Json& one : ArrayAt(*it, "token_logprobs")) {
    if (one.is_number()) logprobs->push_back(one.get<double>());
  }
  for (const Json& one : ArrayAt(*it, "content")) {
    const auto logprob = one.is_object() ? one.find("logprob") : one.end();
    if (one.is_object() && logprob != one.end() && logprob->is_number()) {
      logprobs->push_back(logprob->get<double>());
    }
  }
}

// It comes once: with a choice, or beside a chat's.
void ReadPrompt(const Json& object, StreamRecord* record) {
  if (!record->prompt.empty()) return;
  for (const Json& token : ArrayAt(object, "prompt_token_ids")) {
    if (token.is_number_integer()) record->prompt.push_back(token.get<int32_t>());
  }
}

// The message of OpenAI's error object, or else the body.
std::string ErrorMessage(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const auto error = json.is_object() ? json.find("error") : json.end();
  const std::string message =
      json.is_object() && error != json.end() ? StringAt(*error, "message") : "";
  return (message.empty() ? body : message).substr(0, kMessageKept);
}

}  // namespace

StreamReader::StreamReader(StreamRecord* record)
    : record_(record), events_([this](const std::string& data) { OnEvent(data); }) {}

void StreamReader::Fail(const std::string& kind, const std::string& message) {
  if (!record_->error.empty()) return;
  record_->error = kind;
  record_->message = message;
}

void StreamReader::OnBody(std::string_view bytes, double now_s) {
  now_s_ = now_s;
  if (status_ == kOk && record_->streamed) return events_.Feed(bytes);
  if (status_ == kOk) {
    body_.append(bytes);
  } else if (body_.size() < kMessageKept) {
    body_.append(bytes.substr(0, 16 * kMessageKept));
  }
}

void StreamReader::OnEvent(const std::string& data) {
  if (data == "[DONE]") {
    record_->done = true;
    return;
  }
  OnJson(data);
}

void StreamReader::OnJson(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Fail("bad event", text.substr(0, kMessageKept));
  if (json.contains("error")) return Fail("error event", ErrorMessage(text));
  const auto usage = json.find("usage");
  if (usage != json.end() && usage->is_object() && usage->contains("completion_tokens") &&
      (*usage)["completion_tokens"].is_number_integer()) {
    record_->usage_tokens = (*usage)["completion_tokens"].get<int64_t>();
  }
  ReadPrompt(json, record_);
  for (const Json& choice : ArrayAt(json, "choices")) {
    if (!OnChoice(choice)) return Fail("bad event", text.substr(0, kMessageKept));
  }
}

bool StreamReader::OnChoice(const Json& choice) {
  if (!choice.is_object()) return false;
  ReadPrompt(choice, record_);
  const auto index = choice.find("index");
  const int64_t place =
      index != choice.end() && index->is_number_integer() ? index->get<int64_t>() : 0;
  if (place < 0 || place >= kChoicesMax) return false;
  auto& choices = record_->choices;
  if (static_cast<size_t>(place) >= choices.size()) choices.resize(static_cast<size_t>(place) + 1);
  ChoiceRecord& one = choices[static_cast<size_t>(place)];
  one.answer.text += TextOf(choice);
  for (const Json& token : ArrayAt(choice, "token_ids")) {
    if (!token.is_number_integer()) return false;
    one.answer.tokens.push_back(token.get<int32_t>());
    one.token_s.push_back(now_s_);
  }
  ReadLogprobs(choice, &one.answer.logprobs);
  const std::string finish = StringAt(choice, "finish_reason");
  if (finish.empty()) return true;
  one.answer.finish_reason = finish;
  ++one.finishes;
  return true;
}

void StreamReader::OnEnd(double now_s) {
  record_->end_s = now_s;
  if (status_ != kOk) return Fail(absl::StrCat("HTTP ", status_), ErrorMessage(body_));
  if (!record_->streamed) {
    now_s_ = now_s;
    OnJson(body_);
    record_->done = record_->error.empty();
  }
  const bool finished = std::all_of(record_->choices.begin(), record_->choices.end(),
                                    [](const ChoiceRecord& one) { return one.finishes > 0; });
  if (!record_->done || !finished) {
    Fail("stream ended early", "the answer ended without [DONE] or without a finish reason");
  }
}

}  // namespace skein::services::chaos
