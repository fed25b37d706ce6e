// The errors and the header fields of the API's description.
#include <vector>

#include "services/openai/api_description.h"

namespace skein::services::openai {

const std::vector<ErrorCase>& ErrorCases() {
  static const std::vector<ErrorCase> all = {
      {400, "bad_request", "The HTTP request is malformed, or of another version of HTTP."},
      {400, "invalid_json", "The body is not valid JSON."},
      {400, "invalid_type", "A parameter, or the body, is of another type."},
      {400, "invalid_value", "A parameter is out of range, or parameters contradict one another."},
      {400, "missing_required_parameter", "A required parameter is missing."},
      {400, "unsupported_parameter", "A parameter that would change the answer is not served."},
      {400, "unknown_parameter", "Only with --strict-api: no parameter has this name."},
      {400, "empty_prompt", "A prompt without any token."},
      {400, "empty_array", "`messages` is empty."},
      {400, "context_length_exceeded", "Prompt and output together do not fit the model."},
      {401, "invalid_api_key",
       "With --api-key-file: no `Authorization: Bearer KEY` whose key is in the file. Pages that "
       "probes and metrics read need none."},
      {403, "origin_not_allowed",
       "A browser's preflight from a page that --allowed-origins does not list."},
      {404, "model_not_found", "No model of this name is served here."},
      {404, "unknown_url", "No such path."},
      {405, "method_not_allowed", "The path has other methods, which `Allow` lists."},
      {413, "request_too_large", "The body is longer than --max-body-bytes."},
      {415, "unsupported_media_type", "The body is not `application/json`, or it is compressed."},
      {429, "rate_limit_exceeded", "Too many requests wait; retry after `Retry-After` seconds."},
      {429, "too_many_connections",
       "--max-connections are open; retry after `Retry-After` seconds."},
      {431, "header_too_large", "The header fields are longer than --max-header-bytes."},
      {500, "internal_error", "A fault of the server."},
      {503, "unavailable", "No instance can serve the request now, or one was lost; retry."},
      {503, "draining", "The router shuts down; another one serves."},
      {503, "not_ready", "The message says what is missing."},
      {504, "deadline_exceeded", "The request took longer than --request-deadline-s."},
  };
  return all;
}

const std::vector<HeaderField>& HeaderFields() {
  static const std::vector<HeaderField> all = {
      {"Authorization", true, "`Bearer KEY`, where the router has keys (--api-key-file)."},
      {"X-Request-Id", true,
       "Names the request in answers, logs and `skeinctl explain`: 1 to 128 printable characters. "
       "Without it one is made. `X-Correlation-ID` is the same."},
      {"traceparent", true, "W3C trace context; passed on to all calls within the cluster."},
      {"x-session-id", true,
       "Stands in the log, no more. `session-id`, `x-session-affinity`, `x-session-token`, "
       "`x-dynamo-session-id`, `x-smg-routing-key` and `x-claude-code-session-id` are the same."},
      {"x-llm-d-inference-fairness-id", true,
       "A tenant's name; stands in the log, no more. `x-smg-tenant-id` is the same."},
      {"x-dynamo-request-priority", true,
       "Checked and logged, without effect. The same holds for "
       "`x-dynamo-request-strict-priority`, `x-llm-d-inference-objective` and `x-smg-priority`."},
      {"X-Request-Id", false, "The request's name, on every answer."},
      {"X-Skein-Warning", false,
       "Names parameters that this API does not know and that had no effect, with the known one "
       "that looks most alike."},
      {"Retry-After", false, "With 429 and 503: seconds to wait."},
      {"X-Skein-Dropped-Reason", false,
       "With 429, 503 and 504: `rejected-...` when nothing was done yet, so that a retry is cheap; "
       "`evicted-...` when the work of instances was thrown away. "
       "`X-LLM-D-Request-Dropped-Reason` says the same."},
      {"Allow", false, "With 405: the methods of the path."},
  };
  return all;
}

}  // namespace skein::services::openai
