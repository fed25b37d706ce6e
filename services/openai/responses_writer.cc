#include <utility>

#include "services/openai/responses.h"

namespace skein::services::openai {
namespace {

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json UsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", 0}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json NullOr(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// ResponseErrorCode is a closed list; these are the members that fit.
const char* FailureCode(const ApiError& error) {
  return error.status == 429 ? "rate_limit_exceeded" : "server_error";
}

}  // namespace

ResponsesWriter::ResponsesWriter(Head head, std::string message_id, Json settings)
    : head_(std::move(head)), message_id_(std::move(message_id)), settings_(std::move(settings)) {}

Json ResponsesWriter::Response(std::string_view status) const {
  Json response = {{"id", head_.id},
                   {"object", "response"},
                   {"created_at", head_.created},
                   {"status", status},
                   {"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", head_.model},
                   {"output", Json::array()},
                   {"usage", nullptr}};
  response.update(settings_);
  return response;
}

Json ResponsesWriter::TextPart() const {
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ResponsesWriter::Message(std::string_view status) const {
  Json content = Json::array();
  if (status != "in_progress") content.push_back(TextPart());
  return {{"id", message_id_},
          {"type", "message"},
          {"role", "assistant"},
          {"status", status},
          {"content", std::move(content)}};
}

Json ResponsesWriter::Ended(const Usage& usage) const {
  const char* status = cut_ ? "incomplete" : "completed";
  Json response = Response(status);
  if (cut_) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response["output"].push_back(Message(status));
  response["usage"] = UsageJson(usage);
  return response;
}

std::string ResponsesWriter::Event(std::string_view type, Json fields) {
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(fields);
  return "event: " + std::string(type) + "\ndata: " + Text(event) + "\n\n";
}

std::string ResponsesWriter::Begin() {
  std::string out = Event("response.created", {{"response", Response("in_progress")}});
  out += Event("response.in_progress", {{"response", Response("in_progress")}});
  out +=
      Event("response.output_item.added", {{"output_index", 0}, {"item", Message("in_progress")}});
  return out + Event("response.content_part.added", {{"item_id", message_id_},
                                                     {"output_index", 0},
                                                     {"content_index", 0},
                                                     {"part", TextPart()}});
}

std::string ResponsesWriter::Piece(const Choice& piece) {
  cut_ = cut_ || piece.finish_reason == "length";
  if (piece.text.empty()) return {};
  text_ += piece.text;
  return Event("response.output_text.delta", {{"item_id", message_id_},
                                              {"output_index", 0},
                                              {"content_index", 0},
                                              {"delta", piece.text},
                                              {"logprobs", Json::array()}});
}

std::string ResponsesWriter::End(const Usage& usage) {
  const char* status = cut_ ? "incomplete" : "completed";
  std::string out = Event("response.output_text.done", {{"item_id", message_id_},
                                                        {"output_index", 0},
                                                        {"content_index", 0},
                                                        {"text", text_},
                                                        {"logprobs", Json::array()}});
  out += Event(
      "response.content_part.done",
      {{"item_id", message_id_}, {"output_index", 0}, {"content_index", 0}, {"part", TextPart()}});
  out += Event("response.output_item.done", {{"output_index", 0}, {"item", Message(status)}});
  return out + Event(std::string("response.") + status, {{"response", Ended(usage)}});
}

std::string ResponsesWriter::Failed(const ApiError& error, const Usage& usage) {
  std::string out = Event(
      "error",
      {{"code", NullOr(error.code)}, {"message", error.message}, {"param", NullOr(error.param)}});
  Json response = Response("failed");
  response["error"] = {{"code", FailureCode(error)}, {"message", error.message}};
  response["output"].push_back(Message("incomplete"));
  response["usage"] = UsageJson(usage);
  return out + Event("response.failed", {{"response", std::move(response)}});
}

std::string ResponsesWriter::Whole(const Choice& choice, const Usage& usage) {
  Piece(choice);
  return Text(Ended(usage));
}

}  // namespace skein::services::openai
