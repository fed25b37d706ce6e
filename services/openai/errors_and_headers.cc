// The errors and the header fields of the API's description.
#include <vector>

#include "services/openai/api_description.h"

namespace skein::services::openai {

const std::vector<ErrorCase>& ErrorCases() {
  static const std::vector<ErrorCase> all = {
      {400, "bad_request", "The HTTP request is malformed, or of an unsupported HTTP version."},
      {400, "invalid_json", "The body is not valid JSON."},
      {400, "invalid_type", "A parameter, or the body, has the wrong type."},
      {400, "invalid_value", "A parameter is out of range, or parameters contradict one another."},
      {400, "missing_required_parameter", "A required parameter is missing."},
      {400, "unsupported_parameter", "A parameter that would change the answer is not served."},
      {400, "unknown_parameter",
       "No parameter has this name: of a form or a query, and with --strict-api of a body."},
      {400, "empty_prompt", "The prompt has no tokens."},
      {400, "empty_array", "`messages` is empty."},
      {400, "context_length_exceeded", "Prompt and output together do not fit the model."},
      {400, "tls_required", "With --tls-dir: the request came without TLS; use https://."},
      {401, "invalid_api_key",
       "With --api-key-file: no `Authorization: Bearer KEY` whose key is in the file. Probes "
       "need none."},
      {403, "origin_not_allowed",
       "A browser's preflight from a page that --allowed-origins does not list, or a request of "
       "such a page that would change something."},
      {403, "host_not_allowed",
       "The Host header has a name that is not this server's: a page on the web has made its own "
       "name resolve to this machine. See --allowed-hosts."},
      {403, "certificate_required",
       "With --mtls=all: the client presented no certificate. Probes need none."},
      {404, "model_not_found",
       "No model of this name is served here, or not to the tenant of this API key."},
      {404, "unknown_url", "No such path."},
      {405, "method_not_allowed",
       "The path does not support this method; `Allow` lists those it supports."},
      {413, "request_too_large",
       "The body is longer than --max-body-bytes, or a file longer than --max-file-bytes."},
      {415, "unsupported_media_type",
       "The body is not `application/json`, or, of a file, not `multipart/form-data`; or it is "
       "compressed."},
      {429, "rate_limit_exceeded",
       "Too many requests wait, or the tenant of the API key has reached a limit, which "
       "`X-Skein-Exceeded` names; retry after `Retry-After` seconds."},
      {429, "too_many_wrong_keys",
       "The client's address has sent many API keys that are not valid; retry after `Retry-After` "
       "seconds."},
      {429, "too_many_connections",
       "--max-connections are open; retry after `Retry-After` seconds."},
      {431, "header_too_large", "The header fields are longer than --max-header-bytes."},
      {500, "internal_error", "A server error."},
      {501, "jobs_off", "The orchestrator keeps no files and batches."},
      {503, "unavailable", "No instance can serve the request now, or one was lost; retry."},
      {503, "draining", "The router is shutting down; use another one."},
      {503, "not_ready", "The message says what is missing."},
      {504, "deadline_exceeded", "The request took longer than --request-deadline-s."},
  };
  return all;
}

const std::vector<HeaderField>& HeaderFields() {
  static const std::vector<HeaderField> all = {
      {"Authorization", true, "`Bearer KEY`, where the router has keys (--api-key-file)."},
      {"X-Request-Id", true,
       "The request's id in answers, logs and `skeinctl explain`: 1 to 128 printable characters. "
       "If absent, the router makes one. `X-Correlation-ID` has the same meaning."},
      {"traceparent", true, "W3C trace context; passed on to all calls within the cluster."},
      {"x-session-id", true,
       "Written to the log. If the router uses several cells, requests with the same value go to "
       "the same cell while it has room. `session-id`, `x-session-affinity`, `x-session-token`, "
       "`x-dynamo-session-id`, `x-smg-routing-key` and `x-claude-code-session-id` have the same "
       "meaning."},
      {"x-llm-d-inference-fairness-id", true,
       "A tenant's name, where the router has no keys; with keys the key's tenant counts. "
       "`x-smg-tenant-id` has the same meaning."},
      {"x-llm-d-slo-ttft-ms", true,
       "What the client wants at best: milliseconds until the first token. Not more urgent than "
       "its key or tenant allows. `x-slo-ttft-ms` has the same meaning."},
      {"x-llm-d-slo-tpot-ms", true,
       "The same for each further token. `x-slo-tpot-ms` has the same meaning."},
      {"x-dynamo-request-priority", true,
       "Checked and logged, without effect. The same holds for "
       "`x-dynamo-request-strict-priority`, `x-llm-d-inference-objective` and `x-smg-priority`."},
      {"X-Request-Id", false, "The request's id, on every answer."},
      {"X-Skein-Warning", false,
       "Lists unknown parameters, which had no effect, each with the most similar "
       "known one."},
      {"Retry-After", false, "With 429 and 503: seconds to wait."},
      {"X-Skein-Dropped-Reason", false,
       "With 429, 503 and 504: `rejected-...` when no work was done yet, so that a retry is cheap; "
       "`evicted-...` when work of instances was lost. "
       "`X-LLM-D-Request-Dropped-Reason` says the same."},
      {"X-Skein-Exceeded", false,
       "With 429 for a tenant's limit: `requests_per_minute`, `tokens_per_minute` or "
       "`concurrency`."},
      {"X-RateLimit-Limit-Requests", false,
       "The tenant's requests per minute at this router; `-Remaining-Requests` and "
       "`-Reset-Requests` say how many are left, and how long until all are left again. The same "
       "for `-Tokens`."},
      {"X-Should-Retry", false,
       "`false`, instead of `Retry-After`: the request will never fit the tenant's limit."},
      {"Allow", false, "With 405: the methods of the path."},
  };
  return all;
}

}  // namespace skein::services::openai
