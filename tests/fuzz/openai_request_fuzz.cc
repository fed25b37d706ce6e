// Input: a byte that chooses the endpoint and whether unknown parameters are errors, then the body
// of a request. A refused body gets 400 and an error object that is valid JSON; an accepted one
// keeps its guarantees.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "scheduler/vocabulary/check.h"
#include "services/http/error.h"
#include "services/openai/request.h"
#include "services/openai/stop_matcher.h"

namespace {

using namespace skein::services;

void CheckError(const openai::ApiError& error) {
  SKEIN_CHECK(error.status == 400 && !error.message.empty());
  const auto json = nlohmann::json::parse(
      http::ErrorBody(error.status, error.message, error.param, error.code), nullptr, false);
  SKEIN_CHECK(json.is_object() && json["error"]["message"].is_string());
}

void CheckOptions(const openai::GenerationOptions& options) {
  SKEIN_CHECK(options.n >= 1 && options.n <= options.best_of && options.best_of <= 8);
  SKEIN_CHECK(options.top_logprobs >= -1 && options.top_logprobs <= 20);
  SKEIN_CHECK(!options.temperature || (*options.temperature >= 0 && *options.temperature <= 2));
  SKEIN_CHECK(!options.max_tokens || *options.max_tokens >= 0);
  SKEIN_CHECK(options.stop.size() <= openai::kStopStringsMax);
  openai::StopMatcher matcher(options.stop);
  matcher.Push("some text");
  matcher.Flush();
}

// Warnings go into a header.
void CheckNotes(const openai::BodyNotes& notes) {
  SKEIN_CHECK(static_cast<int64_t>(notes.warnings.size()) <= notes.unknown);
  for (const std::string& warning : notes.warnings) {
    for (const char c : warning) SKEIN_CHECK(c >= 32 && c < 127);
  }
}

template <typename Request>
void CheckGeneration(std::string_view body, bool strict) {
  Request request;
  if (const auto error = openai::Parse(body, {.choices_max = 8, .strict = strict}, &request)) {
    CheckError(*error);
  } else {
    CheckOptions(request.options);
  }
  CheckNotes(request.notes);
}

template <typename Request>
void CheckOther(std::string_view body, bool strict) {
  Request request;
  if (const auto error = openai::Parse(body, {.strict = strict}, &request)) CheckError(*error);
  CheckNotes(request.notes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool strict = data[0] / 4 % 2 == 1;
  switch (data[0] % 4) {
    case 0:
      CheckGeneration<openai::CompletionRequest>(body, strict);
      break;
    case 1:
      CheckGeneration<openai::ChatRequest>(body, strict);
      break;
    case 2:
      CheckOther<openai::TokenizeRequest>(body, strict);
      break;
    default:
      CheckOther<openai::DetokenizeRequest>(body, strict);
  }
  return 0;
}
