#include "services/openai/openapi.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/version.h"
#include "services/openai/answer_schemas.h"
#include "services/openai/api_description.h"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

Json Ref(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

Json TypeOf(Type type) {
  switch (type) {
    case Type::kBool:
      return {{"type", {"boolean", "null"}}};
    case Type::kInt:
    case Type::kInt64:
      return {{"type", {"integer", "null"}}};
    case Type::kNumber:
      return {{"type", {"number", "null"}}};
    case Type::kString:
      return {{"type", {"string", "null"}}};
    case Type::kStrings:
      return {{"type", {"string", "array", "null"}}, {"items", {{"type", "string"}}}};
    case Type::kTokenIds:
      return {{"type", {"array", "null"}}, {"items", {{"type", "integer"}, {"minimum", 0}}}};
    case Type::kObject:
      return {{"type", {"object", "null"}}};
    case Type::kArray:
      return {{"type", {"array", "null"}}};
    case Type::kAny:
      break;
  }
  return Json::object();
}

Json Number(double value) {
  if (value == static_cast<double>(static_cast<int64_t>(value))) return static_cast<int64_t>(value);
  return value;
}

Json SchemaOf(const Parameter& row) {
  Json schema = TypeOf(row.type);
  if (row.low != row.high) {
    schema["minimum"] = Number(row.low);
    schema["maximum"] = Number(row.high);
  }
  const Json fallback = Json::parse(row.fallback, nullptr, false);
  if (!row.fallback.empty() && !fallback.is_discarded()) schema["default"] = fallback;
  std::string about(row.meaning);
  if (row.support == Support::kIgnored) about = "Accepted without effect: " + about;
  if (row.support == Support::kRefused) {
    about = "Other values are refused: " + about;
    schema["enum"] = Json::parse(row.neutral);
  }
  schema["description"] = about;
  return schema;
}

// A row "a.b" goes into the properties of a's schema.
void Place(const Parameter& row, Json* schema) {
  const size_t dot = row.name.find('.');
  if (dot == std::string_view::npos) {
    (*schema)["properties"][std::string(row.name)] = SchemaOf(row);
    if (row.required) (*schema)["required"].push_back(row.name);
    return;
  }
  Json& outer = (*schema)["properties"][std::string(row.name.substr(0, dot))];
  outer["properties"][std::string(row.name.substr(dot + 1))] = SchemaOf(row);
}

const std::vector<Parameter>& BodyOf(const Endpoint& endpoint) {
  return endpoint.form.empty() ? endpoint.parameters : endpoint.form;
}

Json RequestSchema(const Endpoint& endpoint) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json refused = Json::array();
  for (const Parameter& row : BodyOf(endpoint)) {
    const bool never = row.support == Support::kRefused && row.neutral.empty();
    never ? refused.push_back(row.name) : Place(row, &schema);
  }
  if (!refused.empty()) schema["x-skein-refused"] = refused;
  return schema;
}

Json Content(std::string_view media, Json schema) {
  return {{std::string(media), {{"schema", std::move(schema)}}}};
}

Json Success(const Endpoint& endpoint) {
  Json content;
  const std::string_view schema = SchemaName(endpoint.answer);
  if (endpoint.answer == Body::kText) {
    content = Content("text/plain", {{"type", "string"}});
  } else if (endpoint.answer == Body::kBytes) {
    content = Content("application/octet-stream", {{"type", "string"}, {"format", "binary"}});
  } else {
    content = Content("application/json", schema.empty() ? Json{{"type", "object"}} : Ref(schema));
  }
  if (endpoint.streams) {
    content["text/event-stream"] = {{"schema", Ref(EventSchemaName(endpoint.answer))}};
  }
  return {{"description", endpoint.summary}, {"content", content}};
}

Json Responses(const Endpoint& endpoint) {
  Json responses = {{"200", Success(endpoint)}};
  std::map<std::string, std::string> by_status;
  for (const ErrorCase& error : ErrorCases()) {
    const auto& codes = endpoint.errors;
    if (std::find(codes.begin(), codes.end(), error.code) == codes.end()) continue;
    std::string& text = by_status[std::to_string(error.status)];
    text += (text.empty() ? "" : " ") + std::string(error.code) + ": " + std::string(error.meaning);
  }
  for (const auto& [status, text] : by_status) {
    responses[status] = {{"description", text},
                         {"content", Content("application/json", Ref("Error"))}};
  }
  return responses;
}

Json Headers() {
  Json list = Json::array();
  for (const HeaderField& header : HeaderFields()) {
    if (!header.of_request) continue;
    list.push_back({{"name", header.name},
                    {"in", "header"},
                    {"description", header.meaning},
                    {"schema", {{"type", "string"}}}});
  }
  return list;
}

std::string OperationId(const Endpoint& endpoint) {
  std::string id;
  for (const char c : std::string(endpoint.method) + std::string(endpoint.path)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) id += static_cast<char>(c | 32);
    if (!letter && !id.empty() && id.back() != '_' && c != '*') id += '_';
  }
  return id;
}

Json Operation(const Endpoint& endpoint, const std::string& request_schema) {
  Json operation = {{"operationId", OperationId(endpoint)},
                    {"summary", endpoint.summary},
                    {"parameters", Headers()}};
  if (endpoint.path.find('*') != std::string_view::npos) {
    operation["parameters"].push_back(
        {{"name", "rest"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  for (const Parameter& row : endpoint.query) {
    operation["parameters"].push_back(
        {{"name", row.name}, {"in", "query"}, {"schema", SchemaOf(row)}});
  }
  if (!BodyOf(endpoint).empty()) {
    const char* media = endpoint.form.empty() ? "application/json" : "multipart/form-data";
    operation["requestBody"] = {{"required", true},
                                {"content", Content(media, Ref(request_schema))}};
  }
  const auto& errors = endpoint.errors;
  if (std::find(errors.begin(), errors.end(), "invalid_api_key") != errors.end()) {
    operation["security"] = Json::array({Json::object(), Json{{"api_key", Json::array()}}});
  }
  operation["responses"] = Responses(endpoint);
  return operation;
}

}  // namespace

std::string OpenApiJson() {
  Json paths, schemas = AnswerSchemas();
  const Json api_key = {{"type", "http"},
                        {"scheme", "bearer"},
                        {"description", "Where the router has keys (--api-key-file)."}};
  for (const Endpoint& endpoint : Endpoints()) {
    std::string path(endpoint.path), method;
    if (const size_t star = path.find('*'); star != std::string::npos) {
      path.replace(star, 1, "{rest}");
    }
    for (const char c : endpoint.method) method += static_cast<char>(c | 32);
    const std::string schema = OperationId(endpoint) + "_request";
    if (!BodyOf(endpoint).empty()) schemas[schema] = RequestSchema(endpoint);
    paths[path][method] = Operation(endpoint, schema);
  }
  return Json{{"openapi", "3.1.0"},
              {"info", {{"title", "Skein"}, {"version", kVersion}}},
              {"paths", paths},
              {"components", {{"schemas", schemas}, {"securitySchemes", {{"api_key", api_key}}}}}}
             .dump(1) +
         "\n";
}

}  // namespace skein::services::openai
