#include "services/skeinctl/chaos/stream_reader.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::json;

constexpr int kOk = 200;
constexpr size_t kMessageKept = 300;

std::string StringAt(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
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
  if (status_ == kOk) return events_.Feed(bytes);
  if (body_.size() < kMessageKept) body_.append(bytes.substr(0, 16 * kMessageKept));
}

void StreamReader::OnEvent(const std::string& data) {
  if (data == "[DONE]") {
    record_->done = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object()) return Fail("bad event", data.substr(0, kMessageKept));
  if (json.contains("error")) return Fail("error event", ErrorMessage(data));
  const auto usage = json.find("usage");
  if (usage != json.end() && usage->is_object() && usage->contains("completion_tokens") &&
      (*usage)["completion_tokens"].is_number_integer()) {
    record_->usage_tokens = (*usage)["completion_tokens"].get<int64_t>();
  }
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array()) return;
  Answer& answer = record_->answer;
  for (const Json& choice : *choices) {
    answer.text += StringAt(choice, "text");
    const auto tokens = choice.is_object() ? choice.find("token_ids") : choice.end();
    if (choice.is_object() && tokens != choice.end() && tokens->is_array()) {
      for (const Json& token : *tokens) {
        if (!token.is_number_integer()) return Fail("bad event", data.substr(0, kMessageKept));
        answer.tokens.push_back(token.get<int32_t>());
        record_->token_s.push_back(now_s_);
      }
    }
    const std::string finish = StringAt(choice, "finish_reason");
    if (finish.empty()) continue;
    answer.finish_reason = finish;
    ++record_->finishes;
  }
}

void StreamReader::OnEnd(double now_s) {
  record_->end_s = now_s;
  if (status_ != kOk) return Fail(absl::StrCat("HTTP ", status_), ErrorMessage(body_));
  if (!record_->done || record_->finishes == 0) {
    Fail("stream ended early", "the answer ended without [DONE] or without a finish reason");
  }
}

}  // namespace skein::services::chaos
