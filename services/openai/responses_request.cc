#include <cstddef>
#include <optional>
#include <utility>

#include "services/openai/parse.h"
#include "services/openai/responses.h"

namespace skein::services::openai {
namespace {

ApiError NotAString(const std::string& path) {
  return InvalidParam(path, "Invalid type for '" + path + "': expected a string.", "invalid_type");
}

// The text parts of a message, joined as in a chat.
MaybeError JoinParts(const Json& parts, const std::string& path, std::string* text) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    const Json& part = parts[i];
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      return InvalidParam(here, "Invalid '" + here + "': expected a content part with a type.");
    }
    if (part["type"] != "input_text" && part["type"] != "output_text") {
      return Unsupported(here + ".type", "only input_text and output_text are served.");
    }
    if (!part.contains("text") || !part["text"].is_string()) return NotAString(here + ".text");
    if (i > 0) *text += "\n";
    *text += part["text"].get_ref<const std::string&>();
  }
  return std::nullopt;
}

MaybeError ReadItem(const Json& item, const std::string& path, Json* messages) {
  if (!item.is_object()) {
    return InvalidParam(path, "Invalid type for '" + path + "': expected an object.",
                        "invalid_type");
  }
  if (item.contains("type") && item["type"] != "message") {
    return Unsupported(path + ".type", "only items of type 'message' are served.");
  }
  std::string role;
  if (item.contains("role") && item["role"].is_string()) role = item["role"];
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant") {
    return InvalidParam(path + ".role",
                        "Invalid value for '" + path +
                            ".role': expected one of 'user', 'assistant', 'system' and "
                            "'developer'.");
  }
  const auto content = item.find("content");
  if (content == item.end()) {
    return InvalidParam(path + ".content", "Missing required parameter: '" + path + ".content'.",
                        "missing_required_parameter");
  }
  std::string text;
  if (content->is_string()) {
    text = content->get_ref<const std::string&>();
  } else if (!content->is_array()) {
    return InvalidParam(
        path + ".content",
        "Invalid type for '" + path + ".content': expected a string or an array of content parts.",
        "invalid_type");
  } else if (MaybeError error = JoinParts(*content, path + ".content", &text)) {
    return error;
  }
  messages->push_back({{"role", role}, {"content", std::move(text)}});
  return std::nullopt;
}

void ReadInput(Fields* fields, Json* messages) {
  std::string instructions;
  fields->String("instructions", &instructions);
  if (!instructions.empty()) {
    messages->push_back({{"role", "system"}, {"content", std::move(instructions)}});
  }
  const Json* input = fields->Find("input");
  if (input->is_string()) {
    messages->push_back({{"role", "user"}, {"content", *input}});
    return;
  }
  if (!input->is_array()) return fields->WrongType("input", "a string or an array of items");
  if (input->empty()) {
    return fields->Fail(
        InvalidParam("input", "Invalid 'input': it must not be empty.", "empty_array"));
  }
  for (size_t i = 0; i < input->size() && fields->ok(); ++i) {
    const std::string path = "input[" + std::to_string(i) + "]";
    if (MaybeError error = ReadItem((*input)[i], path, messages)) fields->Fail(*error);
  }
}

// Parameters that the response object repeats, with defaults for those that the request lacks.
Json SettingsOf(const Json& body, const GenerationOptions& options) {
  const auto asked = [&body](const char* name) {
    const auto it = body.find(name);
    return it == body.end() ? Json(nullptr) : *it;
  };
  const auto or_one = [](const std::optional<double>& value) { return value.value_or(1); };
  return {{"instructions", asked("instructions")},
          {"max_output_tokens", asked("max_output_tokens")},
          {"max_tool_calls", nullptr},
          {"metadata", asked("metadata").is_object() ? asked("metadata") : Json::object()},
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", or_one(options.temperature)},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", "none"},
          {"tools", Json::array()},
          {"top_logprobs", 0},
          {"top_p", or_one(options.top_p)},
          {"truncation", "disabled"},
          {"user", asked("user")}};
}

}  // namespace

MaybeError Parse(std::string_view body, const ParseLimits& limits, ResponsesRequest* request) {
  Json json;
  MaybeError error = ParseBody(body, "/v1/responses", limits.strict, &json, &request->chat.notes);
  if (error) return error;
  Fields fields(json);
  GenerationOptions& options = request->chat.options;
  fields.String("model", &request->chat.model);
  ReadInput(&fields, &request->chat.input.messages);
  fields.Int("max_output_tokens", &options.max_tokens);
  fields.Number("temperature", &options.temperature);
  fields.Number("top_p", &options.top_p);
  fields.Bool("stream", &options.stream);
  if (!fields.ok()) return fields.error();
  request->settings = SettingsOf(json, options);
  return std::nullopt;
}

}  // namespace skein::services::openai
