// The one description of the HTTP API: every path with its parameters, answers and errors.
//
// This description is the only source. CheckBody (body_check.h) checks types and ranges with it,
// OpenApiJson makes /openapi.json, ApiMarkdown makes the tables of docs/api.md, and
// api_description_test walks it against a running router. To add a path or parameter, add a row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::services::openai {

enum class Type {
  kBool,
  kInt,     // between low and high; may be written 3.0
  kInt64,   // any integer of 64 bits
  kNumber,  // between low and high
  kString,
  kStrings,   // a string or an array of strings
  kTokenIds,  // an array of integers from 0
  kObject,
  kArray,
  kAny,  // the reader of the parameter checks it
};

enum class Support {
  kHonoured,
  kIgnored,  // accepted and of no effect on the answer
  kRefused,  // 400 naming the parameter, unless the value has no effect
};

// One member of a request's body. A dotted name means a member of a nested object.
struct Parameter {
  std::string_view name;
  Support support = Support::kHonoured;
  Type type = Type::kAny;
  double low = 0, high = 0;   // kInt, kNumber
  std::string_view fallback;  // the default, as text for people
  std::string_view openai;    // OpenAI's behaviour: "0 to 2"; "": unknown there
  std::string_view vllm;      // the same for vLLM's server
  std::string_view meaning;   // kHonoured: what it does; otherwise: why not, and what to do
  std::string_view neutral;   // kRefused: JSON array of accepted values without effect
  std::string_view unless;    // kRefused: JSON object of members that make it accepted
  bool required = false;
  std::string_view needs;    // JSON object of members that it requires
  std::string_view example;  // JSON value: an accepted one; for a refused parameter a refused one
};

// An error answer. `code` is that of the error object.
struct ErrorCase {
  int status = 400;
  std::string_view code;
  std::string_view meaning;
};

// The form of an answer, by its schema's name in /openapi.json.
enum class Body {
  kCompletion,
  kChat,
  kResponse,
  kTokens,
  kPrompt,
  kModel,
  kModels,
  kFile,
  kFiles,
  kFileDeleted,
  kBatch,
  kBatches,
  kBytes,
  kJson,
  kText
};

struct Endpoint {
  std::string_view method;
  std::string_view path;  // a trailing "*" matches any rest, one in the middle a segment
  std::string_view summary;
  std::vector<Parameter> parameters;
  Body answer = Body::kJson;
  std::vector<std::string_view> errors;  // codes of ErrorCases()
  bool streams = false;                  // "stream": true gives server-sent events
  std::vector<Parameter> form = {};      // set: the body is a form (multipart/form-data) of these
  std::vector<Parameter> query = {};     // of the URL
};

// A header with a meaning in this API beyond HTTP's own.
struct HeaderField {
  std::string_view name;
  bool of_request = false;  // false: of the answer
  std::string_view meaning;
};

const std::vector<Endpoint>& Endpoints();
const std::vector<ErrorCase>& ErrorCases();
const std::vector<HeaderField>& HeaderFields();

// nullptr: no such endpoint.
const Endpoint* FindEndpoint(std::string_view method, std::string_view path);
const Parameter* FindParameter(std::span<const Parameter> parameters, std::string_view name);

// The parameters that completions and chat share. Part of Endpoints(); for additional endpoints.
std::vector<Parameter> SamplingParameters();
std::vector<Parameter> IgnoredParameters();
std::vector<Parameter> RefusedParameters();

}  // namespace skein::services::openai
