#include "services/openai/answer_schemas.h"

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

Json Of(const char* type) { return {{"type", type}}; }
Json Maybe(const char* type) { return {{"type", {type, "null"}}}; }
Json Ref(const char* name) { return {{"$ref", std::string("#/components/schemas/") + name}}; }
Json ListOf(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
Json OrNull(Json schema) { return {{"anyOf", {std::move(schema), Of("null")}}}; }

// `optional`: members that an answer has only on request.
Json Object(Json properties, const std::vector<std::string>& optional = {}) {
  Json required = Json::array();
  for (const auto& [name, schema] : properties.items()) {
    if (std::find(optional.begin(), optional.end(), name) == optional.end()) {
      required.push_back(name);
    }
  }
  return {
      {"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json StopReason() { return {{"type", {"integer", "string", "null"}}}; }
Json TokenIds() { return ListOf(Of("integer")); }

Json UsageSchema() {
  return Object({{"prompt_tokens", Of("integer")},
                 {"completion_tokens", Of("integer")},
                 {"total_tokens", Of("integer")},
                 {"prompt_tokens_details", Object({{"cached_tokens", Of("integer")}})},
                 {"completion_tokens_details", Object({{"reasoning_tokens", Of("integer")}})}});
}

Json MetricsSchema() {
  return Object({{"time_to_first_token_ms", Maybe("number")},
                 {"queue_time_ms", Of("number")},
                 {"plan_time_ms", Of("number")},
                 {"prefill_time_ms", Of("number")},
                 {"handoff_time_ms", Of("number")},
                 {"generation_time_ms", Of("number")},
                 {"mean_itl_ms", Maybe("number")},
                 {"total_time_ms", Of("number")}});
}

Json CompletionLogprobsSchema() {
  return Object({{"text_offset", ListOf(Of("integer"))},
                 {"token_logprobs", ListOf(Maybe("number"))},
                 {"tokens", ListOf(Of("string"))},
                 {"top_logprobs", ListOf(Maybe("object"))}});
}

Json ChatLogprobsSchema() {
  const Json top = Object(
      {{"token", Of("string")}, {"logprob", Of("number")}, {"bytes", ListOf(Of("integer"))}});
  Json entry = top;
  entry["properties"]["top_logprobs"] = ListOf(top);
  entry["required"].push_back("top_logprobs");
  return Object({{"content", ListOf(entry)}, {"refusal", Of("null")}});
}

// The members of a choice besides its text; all but the last three are always present.
Json ChoiceSchema(const char* content, Json schema, const char* logprobs) {
  return Object({{"index", Of("integer")},
                 {content, std::move(schema)},
                 {"logprobs", OrNull(Ref(logprobs))},
                 {"finish_reason", Maybe("string")},
                 {"stop_reason", StopReason()},
                 {"token_ids", TokenIds()},
                 {"prompt_token_ids", TokenIds()}},
                {"stop_reason", "token_ids", "prompt_token_ids"});
}

Json AnswerSchema(const char* choice, bool event) {
  std::vector<std::string> optional = {"prompt_token_ids", "metrics"};
  if (event) optional.push_back("usage");
  return Object({{"id", Of("string")},
                 {"object", Of("string")},
                 {"created", Of("integer")},
                 {"model", Of("string")},
                 {"system_fingerprint", Of("string")},
                 {"choices", ListOf(Ref(choice))},
                 {"usage", event ? OrNull(Ref("Usage")) : Ref("Usage")},
                 {"prompt_token_ids", TokenIds()},
                 {"metrics", Ref("Metrics")}},
                optional);
}

Json ModelSchema() {
  return Object({{"id", Of("string")},
                 {"object", Of("string")},
                 {"created", Of("integer")},
                 {"owned_by", Of("string")},
                 {"root", Of("string")},
                 {"max_model_len", Of("integer")}});
}

Json ResponseSchema() {
  return Object({{"id", Of("string")},
                 {"object", Of("string")},
                 {"created_at", Of("integer")},
                 {"status", Of("string")},
                 {"background", Of("boolean")},
                 {"error", Maybe("object")},
                 {"incomplete_details", Maybe("object")},
                 {"model", Of("string")},
                 {"output", ListOf(Of("object"))},
                 {"usage", Maybe("object")},
                 {"instructions", Maybe("string")},
                 {"max_output_tokens", Maybe("integer")},
                 {"max_tool_calls", Of("null")},
                 {"metadata", Of("object")},
                 {"parallel_tool_calls", Of("boolean")},
                 {"previous_response_id", Of("null")},
                 {"reasoning", Of("object")},
                 {"service_tier", Of("string")},
                 {"store", Of("boolean")},
                 {"temperature", Of("number")},
                 {"text", Of("object")},
                 {"tool_choice", Of("string")},
                 {"tools", ListOf(Of("object"))},
                 {"top_logprobs", Of("integer")},
                 {"top_p", Of("number")},
                 {"truncation", Of("string")},
                 {"user", Maybe("string")}});
}

// Each event has the members of its type.
Json ResponseEventSchema() {
  return Object({{"type", Of("string")},
                 {"sequence_number", Of("integer")},
                 {"response", Ref("Response")},
                 {"output_index", Of("integer")},
                 {"content_index", Of("integer")},
                 {"item_id", Of("string")},
                 {"item", Of("object")},
                 {"part", Of("object")},
                 {"delta", Of("string")},
                 {"text", Of("string")},
                 {"logprobs", ListOf(Of("object"))},
                 {"code", Maybe("string")},
                 {"message", Of("string")},
                 {"param", Maybe("string")}},
                {"response", "output_index", "content_index", "item_id", "item", "part", "delta",
                 "text", "logprobs", "code", "message", "param"});
}

Json FileSchema() {
  return Object({{"id", Of("string")},
                 {"object", Of("string")},
                 {"bytes", Of("integer")},
                 {"created_at", Of("integer")},
                 {"expires_at", Of("integer")},
                 {"filename", Of("string")},
                 {"purpose", Of("string")},
                 {"status", Of("string")}},
                {"expires_at"});
}

Json PageSchema(const char* of) {
  return Object({{"object", Of("string")},
                 {"data", ListOf(Ref(of))},
                 {"first_id", Maybe("string")},
                 {"last_id", Maybe("string")},
                 {"has_more", Of("boolean")}});
}

Json BatchSchema() {
  const Json error = Object({{"code", Of("string")},
                             {"message", Of("string")},
                             {"param", Maybe("string")},
                             {"line", Maybe("integer")}});
  const Json usage =
      Object({{"input_tokens", Of("integer")},
              {"input_tokens_details", Object({{"cached_tokens", Of("integer")}})},
              {"output_tokens", Of("integer")},
              {"output_tokens_details", Object({{"reasoning_tokens", Of("integer")}})},
              {"total_tokens", Of("integer")}});
  const Json ours = Object({{"running", Of("integer")},
                            {"tokens_per_s", Of("number")},
                            {"left_s", Maybe("integer")},
                            {"late", Of("boolean")}});
  return Object({{"id", Of("string")},
                 {"object", Of("string")},
                 {"endpoint", Of("string")},
                 {"errors", OrNull(Object({{"object", Of("string")}, {"data", ListOf(error)}}))},
                 {"input_file_id", Of("string")},
                 {"completion_window", Of("string")},
                 {"status", Of("string")},
                 {"output_file_id", Maybe("string")},
                 {"error_file_id", Maybe("string")},
                 {"created_at", Of("integer")},
                 {"in_progress_at", Maybe("integer")},
                 {"expires_at", Maybe("integer")},
                 {"finalizing_at", Maybe("integer")},
                 {"completed_at", Maybe("integer")},
                 {"failed_at", Maybe("integer")},
                 {"expired_at", Maybe("integer")},
                 {"cancelling_at", Maybe("integer")},
                 {"cancelled_at", Maybe("integer")},
                 {"request_counts", Object({{"total", Of("integer")},
                                            {"completed", Of("integer")},
                                            {"failed", Of("integer")}})},
                 {"usage", usage},
                 {"metadata", Maybe("object")},
                 {"x_skein", ours},
                 {"model", Of("string")}},
                {"model"});
}

Json ErrorSchema() {
  return Object({{"error", Object({{"message", Of("string")},
                                   {"type", Of("string")},
                                   {"param", Maybe("string")},
                                   {"code", Maybe("string")}})}});
}

}  // namespace

Json AnswerSchemas() {
  const Json message =
      Object({{"role", Of("string")}, {"content", Of("string")}, {"refusal", Of("null")}});
  const Json delta =
      Object({{"role", Of("string")}, {"content", Of("string")}}, {"role", "content"});
  return {{"Error", ErrorSchema()},
          {"Usage", UsageSchema()},
          {"Metrics", MetricsSchema()},
          {"CompletionLogprobs", CompletionLogprobsSchema()},
          {"ChatLogprobs", ChatLogprobsSchema()},
          {"CompletionChoice", ChoiceSchema("text", Of("string"), "CompletionLogprobs")},
          {"ChatChoice", ChoiceSchema("message", message, "ChatLogprobs")},
          {"ChatChunkChoice", ChoiceSchema("delta", delta, "ChatLogprobs")},
          {"Completion", AnswerSchema("CompletionChoice", false)},
          {"CompletionChunk", AnswerSchema("CompletionChoice", true)},
          {"ChatCompletion", AnswerSchema("ChatChoice", false)},
          {"ChatCompletionChunk", AnswerSchema("ChatChunkChoice", true)},
          {"Response", ResponseSchema()},
          {"ResponseEvent", ResponseEventSchema()},
          {"Tokens", Object({{"count", Of("integer")},
                             {"max_model_len", Of("integer")},
                             {"tokens", TokenIds()},
                             {"token_strs", OrNull(ListOf(Of("string")))}})},
          {"Prompt", Object({{"prompt", Of("string")}})},
          {"Model", ModelSchema()},
          {"Models", Object({{"object", Of("string")}, {"data", ListOf(Ref("Model"))}})},
          {"File", FileSchema()},
          {"Files", PageSchema("File")},
          {"FileDeleted",
           Object({{"id", Of("string")}, {"object", Of("string")}, {"deleted", Of("boolean")}})},
          {"Batch", BatchSchema()},
          {"Batches", PageSchema("Batch")}};
}

std::string_view SchemaName(Body body) {
  switch (body) {
    case Body::kCompletion:
      return "Completion";
    case Body::kChat:
      return "ChatCompletion";
    case Body::kResponse:
      return "Response";
    case Body::kTokens:
      return "Tokens";
    case Body::kPrompt:
      return "Prompt";
    case Body::kModel:
      return "Model";
    case Body::kModels:
      return "Models";
    case Body::kFile:
      return "File";
    case Body::kFiles:
      return "Files";
    case Body::kFileDeleted:
      return "FileDeleted";
    case Body::kBatch:
      return "Batch";
    case Body::kBatches:
      return "Batches";
    case Body::kBytes:
    case Body::kJson:
    case Body::kText:
      break;
  }
  return "";
}

std::string_view EventSchemaName(Body body) {
  if (body == Body::kResponse) return "ResponseEvent";
  return body == Body::kChat ? "ChatCompletionChunk" : "CompletionChunk";
}

}  // namespace skein::services::openai
