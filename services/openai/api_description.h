// The one description of the HTTP API: every path with its parameters, answers and errors.
//
// What is written here is used, not repeated: CheckBody (body_check.h) checks types and ranges by
// it, OpenApiJson makes /openapi.json of it, ApiMarkdown the tables of docs/api.md, and
// api_description_test walks it against a running router. A new path or parameter is a row here.
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
  kRefused,  // 400 that names it, unless its value asks for nothing
};

// One member of a request's body. A dotted name is a member of a nested object.
struct Parameter {
  std::string_view name;
  Support support = Support::kHonoured;
  Type type = Type::kAny;
  double low = 0, high = 0;   // kInt, kNumber
  std::string_view fallback;  // what holds without it, for people
  std::string_view openai;    // what OpenAI's API does with it: "0 to 2"; "" is: unknown there
  std::string_view vllm;      // the same of vLLM's server
  std::string_view meaning;   // kHonoured: what it does. Otherwise: why not, and what to do
  std::string_view neutral;   // kRefused: JSON array of values that ask for nothing
  std::string_view unless;    // kRefused: JSON object of members with which it is accepted
  bool required = false;
  std::string_view needs;    // JSON object of other members without which it is refused
  std::string_view example;  // JSON of a value: a served one, of a refused parameter a refused one
};

// An answer that is no success. `code` as in the error object.
struct ErrorCase {
  int status = 400;
  std::string_view code;
  std::string_view meaning;
};

// The form of an answer, by its name among the schemas of /openapi.json.
enum class Body { kCompletion, kChat, kResponse, kTokens, kPrompt, kModel, kModels, kJson, kText };

struct Endpoint {
  std::string_view method;
  std::string_view path;  // "*" at its end: any rest
  std::string_view summary;
  std::vector<Parameter> parameters;
  Body answer = Body::kJson;
  std::vector<std::string_view> errors;  // codes of ErrorCases()
  bool streams = false;                  // with "stream": true the answer is server-sent events
};

// A header of this API that means something beyond HTTP's own.
struct HeaderField {
  std::string_view name;
  bool of_request = false;  // otherwise of the answer
  std::string_view meaning;
};

const std::vector<Endpoint>& Endpoints();
const std::vector<ErrorCase>& ErrorCases();
const std::vector<HeaderField>& HeaderFields();

// nullptr: there is none.
const Endpoint* FindEndpoint(std::string_view method, std::string_view path);
const Parameter* FindParameter(std::span<const Parameter> parameters, std::string_view name);

// Parameters that both kinds of generation have. Part of Endpoints(); for further endpoints.
std::vector<Parameter> SamplingParameters();
std::vector<Parameter> IgnoredParameters();
std::vector<Parameter> RefusedParameters();

}  // namespace skein::services::openai
