#include "services/jobs/input_check.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/vocabulary/mix64.h"
#include "services/openai/json_body.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

// Prompts that are equal in so many bytes are taken for ones of one prefix.
constexpr size_t kPrefixBytes = 256;
constexpr int64_t kBytesPerToken = 4;
constexpr int64_t kOutputTokens = 256;  // of a request that sets no limit
constexpr int64_t kTokensMax = 1 << 24;
constexpr size_t kShownBytes = 64;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// FNV-1a, mixed.
uint64_t Digest(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return Mix64(hash);
}

int64_t IntegerOr(const Json& body, const char* name, int64_t otherwise) {
  const auto it = body.find(name);
  if (it == body.end() || !it->is_number_integer()) return otherwise;
  return std::clamp<int64_t>(it->get<int64_t>(), 1, kTokensMax);
}

// A chat begins with its first message, which many lines share; other prompts with their bytes.
std::string PrefixOf(const Json& prompt, const std::string& text) {
  if (prompt.is_array() && prompt.size() > 1 && prompt[0].is_object()) return Dump(prompt[0]);
  return text.substr(0, kPrefixBytes);
}

void Estimate(const Json& body, CheckedLine* line) {
  const Json nothing;
  const auto member = body.contains("messages") ? body.find("messages") : body.find("prompt");
  const Json& prompt = member == body.end() ? nothing : *member;
  const std::string text = Dump(prompt);
  line->prefix = Digest(absl::StrCat(Dump(body["model"]), PrefixOf(prompt, text)));
  const int64_t limit = IntegerOr(body, "max_tokens", kOutputTokens);
  const int64_t output = IntegerOr(body, "max_completion_tokens", limit);
  const int64_t choices = std::min<int64_t>(IntegerOr(body, "n", 1), 128);
  line->tokens =
      std::min(static_cast<int64_t>(text.size()) / kBytesPerToken + output * choices, kTokensMax);
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The start of a string, for an error; whole characters of it.
std::string Shown(const Json& json) {
  auto text = json.get<std::string>();
  size_t end = std::min(text.size(), kShownBytes);
  while (end < text.size() && end > 0 && (text[end] & 0xc0) == 0x80) --end;
  text.resize(end);
  return text;
}

const char* TypeName(const Json& json) { return json.is_null() ? "null" : json.type_name(); }

}  // namespace

void InputCheck::Feed(std::string_view piece) {
  while (!ended_ && !piece.empty()) {
    const size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    so_far_ += part.size();
    if (!skips_) begun_.append(part);
    if (begun_.size() > kLineBytesMax) TooLong();
    if (end == std::string_view::npos) return;
    piece.remove_prefix(end + 1);
    Line(begun_);
    begun_.clear();
    at_ += std::exchange(so_far_, 0) + 1;
  }
}

void InputCheck::TooLong() {
  Fail("invalid_json_line", absl::StrCat("This line is longer than ", kLineBytesMax >> 20, " MiB."),
       "", number_ + 1);
  begun_.clear();
  skips_ = true;
  ended_ = errors_.size() >= kErrorsMax;
}

void InputCheck::End() {
  if (ended_) return;
  if (!begun_.empty()) Line(begun_);
  ended_ = true;
  if (lines_ == 0 && errors_.empty()) {
    FailWhole("empty_file", "The input file contains no requests.");
  }
}

void InputCheck::Line(std::string_view text) {
  ++number_;
  if (std::exchange(skips_, false) || IsBlank(text)) return;
  if (++lines_ > kLinesMax) {
    FailWhole("too_many_tasks",
              absl::StrCat("The input file has more than ", kLinesMax, " requests."));
    ended_ = true;
    return;
  }
  CheckedLine line{.line = number_, .at = at_, .bytes = text.size()};
  Check(text, &line);
  checked_.push_back(std::move(line));
  ended_ = ended_ || errors_.size() >= kErrorsMax;
}

void InputCheck::Check(std::string_view text, CheckedLine* line) {
  Json json;
  if (openai::ParseJson(text, &json).has_value() || !json.is_object()) {
    return Fail("invalid_json_line", "This line is not parseable as valid JSON.");
  }
  for (const char* name : {"custom_id", "method", "url", "body"}) {
    if (!json.contains(name)) {
      return Fail("missing_required_parameter",
                  absl::StrCat("Missing required parameter: '", name, "'."), name);
    }
  }
  for (const char* name : {"custom_id", "method", "url"}) {
    if (!json[name].is_string()) {
      return Fail("invalid_type",
                  absl::StrCat("Invalid type for '", name, "': expected a string, but got ",
                               TypeName(json[name]), " instead."),
                  name);
    }
  }
  line->custom_id = json["custom_id"].get<std::string>();
  if (line->custom_id.size() > kNameBytesMax) return FailTooLong("custom_id", line->custom_id);
  if (!ids_.insert(line->custom_id).second) {
    return Fail("duplicate_custom_id",
                absl::StrCat("The custom_id '", line->custom_id,
                             "' of this request is the one of another request. Each request of a "
                             "batch has its own."),
                "custom_id");
  }
  if (json["method"] != "POST") {
    return Fail("invalid_value",
                absl::StrCat("Invalid value: '", Shown(json["method"]),
                             "' for 'method'. Supported values are: 'POST'."),
                "method");
  }
  if (json["url"] != endpoint_) {
    return Fail("url_mismatch",
                absl::StrCat("The URL of this request, '", Shown(json["url"]),
                             "', is not the endpoint of the batch, ", endpoint_, "."),
                "url");
  }
  const Json& body = json["body"];
  if (!body.is_object()) {
    return Fail("invalid_type",
                absl::StrCat("Invalid type for 'body': expected an object, but got ",
                             TypeName(body), " instead."),
                "body");
  }
  const auto model = body.find("model");
  if (model == body.end() || !model->is_string()) {
    return Fail("missing_required_parameter", "Missing required parameter: 'body.model'.",
                "body.model");
  }
  const auto name = model->get<std::string>();
  if (name.size() > kNameBytesMax) return FailTooLong("body.model", name);
  if (model_.empty()) model_ = name;
  if (name != model_) {
    return Fail("model_mismatch",
                absl::StrCat("The model of this request is not the one of the requests before, '",
                             model_, "'. All requests of a batch have one model."),
                "body.model");
  }
  Estimate(body, line);
}

void InputCheck::Fail(std::string_view code, std::string message, std::string_view param,
                      uint64_t line) {
  v1::JobError& error = errors_.emplace_back();
  error.set_code(std::string(code));
  error.set_message(std::move(message));
  error.set_param(std::string(param));
  error.set_line(line != 0 ? line : number_);
}

void InputCheck::FailTooLong(const char* param, const std::string& value) {
  Fail("invalid_value",
       absl::StrCat("Invalid value for '", param, "': it has ", value.size(),
                    " bytes; the limit is ", kNameBytesMax, "."),
       param);
}

void InputCheck::FailWhole(std::string_view code, std::string message) {
  Fail(code, std::move(message));
  errors_.back().clear_line();
}

std::vector<CheckedLine> InputCheck::TakeLines() { return std::exchange(checked_, {}); }

absl::StatusOr<std::string> BodyOfLine(std::string_view line) {
  Json json;
  if (openai::ParseJson(line, &json).has_value() || !json.is_object() || !json.contains("body")) {
    return absl::InternalError("a line of an input file is not what it was when it was checked");
  }
  return Dump(json["body"]);
}

}  // namespace skein::services
