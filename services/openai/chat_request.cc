#include <string>
#include <utility>

#include "services/openai/json_body.h"
#include "services/openai/parse.h"

namespace skein::services::openai {
namespace {

// Joins text parts with newlines; templates that expect a string are written for this.
bool JoinParts(const Json& parts, const std::string& path, Fields* message, std::string* text) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string here = path + "[" + std::to_string(i) + "]";
    const Json& part = parts[i];
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      message->Fail(
          InvalidParam(here, "Invalid '" + here + "': expected a content part with a type."));
      return false;
    }
    const auto body = part.find("text");
    if (*type != "text") {
      message->Fail(Unsupported(here + ".type", "only text content is served."));
      return false;
    }
    if (body == part.end() || !body->is_string()) {
      message->Fail(InvalidParam(here + ".text",
                                 "Invalid type for '" + here + ".text': expected a string.",
                                 "invalid_type"));
      return false;
    }
    if (i > 0) *text += "\n";
    *text += body->get_ref<const std::string&>();
  }
  return true;
}

// Templates print arguments as JSON, so the API's string is parsed into the object.
void ReadToolCalls(const std::string& path, Fields* message, Json* calls) {
  if (!calls->is_array()) return message->WrongType("tool_calls", "an array");
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    const std::string here = path + "[" + std::to_string(i) + "].function";
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].contains("name") || !call["function"]["name"].is_string()) {
      return message->Fail(
          InvalidParam(here, "Invalid '" + here + "': expected a function with a name."));
    }
    Json& arguments = call["function"]["arguments"];
    if (arguments.is_null()) arguments = Json::object();
    if (arguments.is_object()) continue;
    Json parsed;
    if (!arguments.is_string() ||
        (!arguments.get_ref<const std::string&>().empty() &&
         (ParseJson(arguments.get_ref<const std::string&>(), &parsed) || !parsed.is_object()))) {
      return message->Fail(
          InvalidParam(here + ".arguments",
                       "Invalid '" + here + ".arguments': expected a JSON object as a string."));
    }
    arguments = parsed.is_null() ? Json::object() : std::move(parsed);
  }
}

void ReadMessage(const Json& json, const std::string& path, Fields* fields, Json* messages) {
  if (!json.is_object()) {
    return fields->Fail(
        InvalidParam(path, "Invalid type for '" + path + "': expected an object.", "invalid_type"));
  }
  Fields message(json, path);
  std::string role;
  message.String("role", &role);
  // Models treat the developer's message like the system's.
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    message.Fail(InvalidParam(path + ".role", "Invalid value for '" + path +
                                                  ".role': expected one of 'system', 'developer', "
                                                  "'user', 'assistant' and 'tool'."));
  }
  Json out = json;
  out["role"] = role;
  const Json* content = message.Find("content");
  if (content == nullptr) {
    // An assistant message with only tool calls has no content; templates expect a string.
    if (role != "assistant" || !message.Has("tool_calls")) {
      message.Fail(InvalidParam(path + ".content",
                                "Missing required parameter: '" + path + ".content'.",
                                "missing_required_parameter"));
    }
    out["content"] = "";
  } else if (content->is_array()) {
    std::string text;
    if (JoinParts(*content, path + ".content", &message, &text)) out["content"] = std::move(text);
  } else if (!content->is_string()) {
    message.WrongType("content", "a string or an array of content parts");
  }
  if (message.Has("tool_calls")) ReadToolCalls(path + ".tool_calls", &message, &out["tool_calls"]);
  if (!message.ok()) return fields->Fail(*message.error());
  messages->push_back(std::move(out));
}

// CheckBody accepts tools only with a tool_choice of "none", which hides them from the model.
void CheckTools(Fields* fields) {
  const Json* tools = fields->Find("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string path = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object() || !tool.contains("type") || tool["type"] != "function" ||
        !tool.contains("function") || !tool["function"].is_object()) {
      return fields->Fail(
          InvalidParam(path, "Invalid '" + path + "': expected a tool of type 'function'."));
    }
  }
}

void ReadLogprobs(Fields* fields, GenerationOptions* options) {
  bool logprobs = false;
  std::optional<int64_t> top;
  fields->Bool("logprobs", &logprobs);
  fields->Int("top_logprobs", &top);
  if (top.value_or(0) > 0 && !logprobs) {
    fields->Fail(
        InvalidParam("top_logprobs", "'logprobs' must be true when 'top_logprobs' is above 0."));
  }
  if (logprobs) options->top_logprobs = static_cast<int>(top.value_or(0));
}

}  // namespace

void ReadChatInput(Fields* fields, ChatInput* input) {
  const Json* messages = fields->Find("messages");
  if (messages->empty()) {
    return fields->Fail(
        InvalidParam("messages", "Invalid 'messages': it must not be empty.", "empty_array"));
  }
  for (size_t i = 0; i < messages->size() && fields->ok(); ++i) {
    ReadMessage((*messages)[i], "messages[" + std::to_string(i) + "]", fields, &input->messages);
  }
  CheckTools(fields);
  fields->Bool("add_generation_prompt", &input->add_generation_prompt);
  fields->Bool("continue_final_message", &input->continue_final_message);
  fields->Bool("add_special_tokens", &input->add_special_tokens);
  if (input->continue_final_message) {
    if (fields->Has("add_generation_prompt") && input->add_generation_prompt) {
      fields->Fail(InvalidParam(
          "continue_final_message",
          "'continue_final_message' and 'add_generation_prompt' exclude one another."));
    }
    input->add_generation_prompt = false;
  }
  if (const Json* kwargs = fields->Find("chat_template_kwargs")) input->template_kwargs = *kwargs;
  for (const char* name : {"documents", "reasoning_effort"}) {
    if (const Json* value = fields->Find(name)) input->template_kwargs[name] = *value;
  }
}

MaybeError Parse(std::string_view body, const ParseLimits& limits, ChatRequest* request) {
  Json json;
  MaybeError error = ParseBody(body, "/v1/chat/completions", limits.strict, &json, &request->notes);
  if (error) return error;
  Fields fields(json);
  GenerationOptions& options = request->options;
  fields.String("model", &request->model);
  ReadChatInput(&fields, &request->input);
  ReadOptions(&fields, &options);
  fields.Int("max_tokens", &options.max_tokens);
  fields.Int("max_completion_tokens", &options.max_tokens);  // takes precedence
  ReadLogprobs(&fields, &options);
  if (options.n > limits.choices_max) {
    fields.Fail(InvalidParam("n", "Too many choices: 'n' is " + std::to_string(options.n) +
                                      "; this server takes at most " +
                                      std::to_string(limits.choices_max) + " (--max-choices)."));
  }
  return fields.error();
}

}  // namespace skein::services::openai
