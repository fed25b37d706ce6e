#include "services/skeinctl/bench/answer_reader.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services::bench {
namespace {

using Json = nlohmann::json;

constexpr size_t kBodyKept = 1 << 20;
constexpr size_t kMessageKept = 300;

Json Parsed(const std::string& text) { return Json::parse(text, nullptr, false); }

std::string StringAt(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// The message of OpenAI's error object, or else the body.
std::string ErrorMessage(const std::string& body) {
  const Json json = Parsed(body);
  if (json.is_object() && json.contains("error")) {
    const Json& error = json["error"];
    const std::string message =
        error.is_string() ? error.get<std::string>() : StringAt(error, "message");
    if (!message.empty()) return message.substr(0, kMessageKept);
  }
  return body.substr(0, kMessageKept);
}

// Whether a choice has text: a completion's text, a chat's delta or message; reasoning counts as
// text.
bool HasText(const Json& choice) {
  if (!StringAt(choice, "text").empty()) return true;
  for (const char* holder : {"delta", "message"}) {
    if (!choice.is_object() || !choice.contains(holder)) continue;
    for (const char* key : {"content", "reasoning_content", "reasoning"}) {
      if (!StringAt(choice[holder], key).empty()) return true;
    }
  }
  return false;
}

// True if the object has token counts.
bool ReadUsage(const Json& json, RequestRecord* record) {
  const auto usage = json.find("usage");
  if (usage == json.end() || !usage->is_object()) return false;
  const auto read = [&](const char* key, int64_t* tokens) {
    const auto it = usage->find(key);
    if (it != usage->end() && it->is_number_integer()) *tokens = it->get<int64_t>();
    return it != usage->end() && it->is_number_integer();
  };
  read("prompt_tokens", &record->input_tokens);
  return read("completion_tokens", &record->output_tokens);
}

}  // namespace

AnswerReader::AnswerReader(bool streaming, RequestRecord* record)
    : streaming_(streaming),
      record_(record),
      events_([this](const std::string& data) { OnEvent(data); }) {}

void AnswerReader::Fail(const std::string& kind, const std::string& message) {
  if (!record_->ok()) return;
  record_->error = kind;
  record_->message = message;
}

void AnswerReader::OnBody(std::string_view bytes, double now_s) {
  now_s_ = now_s;
  if (is_stream()) return events_.Feed(bytes);
  if (record_->status == 200 || body_.size() < kBodyKept) body_.append(bytes);
}

void AnswerReader::OnEvent(const std::string& data) {
  if (data == "[DONE]") {
    ended_ = true;
    return;
  }
  const Json json = Parsed(data);
  if (!json.is_object()) return Fail("bad event", data.substr(0, kMessageKept));
  if (json.contains("error")) return Fail("error event", ErrorMessage(data));
  counted_ |= ReadUsage(json, record_);
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array()) return;
  bool text = false;
  for (const Json& choice : *choices) {
    text |= HasText(choice);
    ended_ |= !StringAt(choice, "finish_reason").empty();
  }
  if (text) record_->text_s.push_back(now_s_);
}

void AnswerReader::ReadWhole() {
  const Json json = Parsed(body_);
  const auto choices = json.is_object() ? json.find("choices") : json.end();
  if (!json.is_object() || choices == json.end() || !choices->is_array()) {
    return Fail("bad answer", body_.substr(0, kMessageKept));
  }
  counted_ = ReadUsage(json, record_);
  for (const Json& choice : *choices) {
    if (!HasText(choice)) continue;
    record_->text_s.assign(1, now_s_);
  }
}

void AnswerReader::OnEnd(double now_s) {
  record_->end_s = now_s;
  now_s_ = now_s;
  if (record_->status != 200) {
    return Fail(absl::StrCat("HTTP ", record_->status), ErrorMessage(body_));
  }
  if (!streaming_) ReadWhole();
  if (streaming_ && !ended_) {
    Fail("stream ended early", "the answer ended without [DONE] or a finish_reason");
  }
  if (record_->ok() && record_->text_s.empty()) {
    Fail("no text", "the answer has no text");
  }
  if (!counted_) record_->output_tokens = static_cast<int64_t>(record_->text_s.size());
}

}  // namespace skein::services::bench
