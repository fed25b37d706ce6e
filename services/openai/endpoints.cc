// The paths of the API's description.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "services/openai/api_description.h"
#include "services/openai/endpoint_parameters.h"

namespace skein::services::openai {
namespace {

std::vector<Parameter> Joined(std::vector<std::vector<Parameter>> parts) {
  std::vector<Parameter> all;
  for (auto& part : parts) std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

Endpoint Get(std::string_view path, std::string_view summary, Body answer,
             std::vector<std::string_view> errors = {}) {
  return {.method = "GET",
          .path = path,
          .summary = summary,
          .parameters = {},
          .answer = answer,
          .errors = std::move(errors)};
}

constexpr std::string_view kBodyErrors[] = {"invalid_json",
                                            "invalid_type",
                                            "invalid_value",
                                            "missing_required_parameter",
                                            "unsupported_parameter",
                                            "unknown_parameter",
                                            "unsupported_media_type",
                                            "model_not_found",
                                            "draining",
                                            "deadline_exceeded",
                                            "rate_limit_exceeded"};

std::vector<std::string_view> BodyErrors(std::vector<std::string_view> more = {}) {
  more.insert(more.begin(), std::begin(kBodyErrors), std::end(kBodyErrors));
  return more;
}

// Errors that any request may get before its path is examined.
void AddErrorsOfTheServer(Endpoint* endpoint) {
  for (const std::string_view code :
       {"bad_request", "tls_required", "too_many_connections", "header_too_large"}) {
    endpoint->errors.push_back(code);
  }
  const bool has_body = !endpoint->parameters.empty() || !endpoint->form.empty();
  if (has_body) endpoint->errors.push_back("request_too_large");
  constexpr std::string_view kProbes[] = {"/livez", "/readyz", "/health", "/ping"};
  if (std::find(std::begin(kProbes), std::end(kProbes), endpoint->path) == std::end(kProbes)) {
    endpoint->errors.push_back("invalid_api_key");
    endpoint->errors.push_back("too_many_wrong_keys");
    endpoint->errors.push_back("certificate_required");
  }
}

std::vector<Endpoint> MakeEndpoints() {
  std::vector<Endpoint> all;
  all.push_back({.method = "POST",
                 .path = "/v1/completions",
                 .summary = "Continues prompts.",
                 .parameters = Joined({CompletionParameters(), SamplingParameters(),
                                       IgnoredParameters(), RefusedParameters()}),
                 .answer = Body::kCompletion,
                 .errors = BodyErrors(
                     {"empty_prompt", "context_length_exceeded", "unavailable", "internal_error"}),
                 .streams = true});
  all.push_back(
      {.method = "POST",
       .path = "/v1/chat/completions",
       .summary = "Answers a conversation.",
       .parameters = Joined({ChatInputParameters(), ChatParameters(), SamplingParameters(),
                             IgnoredParameters(), RefusedParameters()}),
       .answer = Body::kChat,
       .errors =
           BodyErrors({"empty_array", "context_length_exceeded", "unavailable", "internal_error"}),
       .streams = true});
  all.push_back({.method = "POST",
                 .path = "/v1/responses",
                 .summary = "Answers a conversation in the shape of OpenAI's Responses. `store` is "
                            "always false.",
                 .parameters = Joined(
                     {ResponseParameters(), ResponseSamplingParameters(), IgnoredParameters()}),
                 .answer = Body::kResponse,
                 .errors = BodyErrors(
                     {"empty_array", "context_length_exceeded", "unavailable", "internal_error"}),
                 .streams = true});
  all.push_back(
      Get("/v1/models", "Lists the models that can answer.", Body::kModels, {"unavailable"}));
  all.push_back(Get("/v1/models/*", "One model, by its name.", Body::kModel,
                    {"model_not_found", "unavailable"}));
  all.push_back({.method = "POST",
                 .path = "/tokenize",
                 .summary = "The tokens of a text, or of a conversation through the template.",
                 .parameters = Joined({TokenizeParameters(), TokenizeChatParameters()}),
                 .answer = Body::kTokens,
                 .errors = BodyErrors({"empty_array", "context_length_exceeded"})});
  all.push_back({.method = "POST",
                 .path = "/detokenize",
                 .summary = "The text of tokens.",
                 .parameters = DetokenizeParameters(),
                 .answer = Body::kPrompt,
                 .errors = BodyErrors()});
  std::vector<Endpoint> jobs = JobEndpoints();
  std::move(jobs.begin(), jobs.end(), std::back_inserter(all));
  all.push_back(Get("/openapi.json", "This description, as OpenAPI 3.1.", Body::kJson));
  all.push_back(Get("/livez", "200 while the process is alive.", Body::kText));
  all.push_back(Get("/readyz", "200 when requests can be served.", Body::kText, {"not_ready"}));
  all.push_back(Get("/health", "The same as /readyz.", Body::kText, {"not_ready"}));
  all.push_back(Get("/ping", "The same as /readyz.", Body::kText, {"not_ready"}));
  all.push_back({.method = "POST",
                 .path = "/ping",
                 .summary = "The same as /readyz.",
                 .parameters = {},
                 .answer = Body::kText,
                 .errors = {"not_ready"}});
  all.push_back(Get("/version", "The router's version.", Body::kJson));
  all.push_back(Get("/metrics", "Metrics in the Prometheus text format.", Body::kText));
  for (Endpoint& endpoint : all) AddErrorsOfTheServer(&endpoint);
  return all;
}

}  // namespace

const std::vector<Endpoint>& Endpoints() {
  static const std::vector<Endpoint> all = MakeEndpoints();
  return all;
}

const Endpoint* FindEndpoint(std::string_view method, std::string_view path) {
  for (const Endpoint& endpoint : Endpoints()) {
    if (endpoint.method == method && endpoint.path == path) return &endpoint;
  }
  return nullptr;
}

const Parameter* FindParameter(std::span<const Parameter> parameters, std::string_view name) {
  const auto it = std::find_if(parameters.begin(), parameters.end(),
                               [name](const Parameter& p) { return p.name == name; });
  return it == parameters.end() ? nullptr : &*it;
}

}  // namespace skein::services::openai
