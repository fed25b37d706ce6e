#include "services/router/api/edge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"
#include "services/log/log_limit.h"
#include "services/router/api/api_error_map.h"
#include "services/router/api/identity.h"

namespace skein::services {
namespace {

constexpr char kExposedHeaders[] =
    "X-Request-Id, Retry-After, X-Skein-Dropped-Reason, X-LLM-D-Request-Dropped-Reason, "
    "X-Skein-Warning";

http::Response NoKey(const http::Request& request) {
  const bool missing = request.Get("Authorization").empty();
  http::Response response = http::ErrorResponse(
      401,
      missing ? "An API key is required: send the header 'Authorization: Bearer YOUR_KEY'."
              : "The API key in the Authorization header is not valid.",
      {}, "invalid_api_key");
  response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

void LogRefusal(const http::Request& request, const http::Response& response) {
  ClientHints hints;
  ReadHints(request.headers, &hints);
  LogLimited(RefusalKind(response.status, response.error_code),
             response.status >= 500 ? Level::kWarning : Level::kInfo, "request",
             {{"request_id", request.id},
              {"method", std::string_view(request.method).substr(0, 32)},
              {"path", std::string_view(request.path).substr(0, 256)},
              {"status", response.status},
              {"outcome", "refused"},
              {"code", response.error_code},
              {"param", response.error_param},
              {"error", response.error},
              {"session", hints.session},
              {"tenant", hints.tenant},
              {"remote", request.remote}});
}

}  // namespace

std::vector<std::string> DefaultOrigins(bool keys_required) {
  if (keys_required) return {"*"};
  std::vector<std::string> origins;
  for (const char* scheme : {"http", "https"}) {
    for (const char* host : {"localhost", "127.0.0.1", "[::1]"}) {
      origins.push_back(absl::StrCat(scheme, "://", host, ":*"));
    }
  }
  return origins;
}

bool IsOpenPath(std::string_view path) {
  constexpr std::string_view kOpen[] = {"/livez",   "/readyz",  "/health",      "/ping",
                                        "/version", "/metrics", "/openapi.json"};
  return std::find(std::begin(kOpen), std::end(kOpen), path) != std::end(kOpen);
}

absl::StatusOr<std::unique_ptr<Edge>> Edge::Create(const EdgeOptions& options,
                                                   const http::Routes* routes,
                                                   RouterMetrics* metrics) {
  std::unique_ptr<Edge> edge(new Edge(options, routes, metrics));
  if (absl::Status status = edge->keys_.Read(); !status.ok()) return status;
  auto cors =
      http::Cors::Create(options.allowed_origins.empty() ? DefaultOrigins(edge->keys_.required())
                                                         : options.allowed_origins,
                         kExposedHeaders);
  if (!cors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--allowed-origins: ", cors.status().message()));
  }
  edge->cors_ = *std::move(cors);
  const bool only_here = http::IsLoopbackHost(options.host) && !edge->keys_.required();
  if (only_here || !options.allowed_hosts.empty()) {
    edge->sites_ = http::SiteCheck(options.allowed_hosts);
  }
  return edge;
}

std::optional<http::Response> Edge::Refusal(const http::Request& request) const {
  if (auto foreign = sites_.Refuse(request, cors_); foreign.has_value()) return foreign;
  if (IsOpenPath(request.path) || keys_.Admits(BearerOf(request.Get("Authorization")))) {
    return std::nullopt;
  }
  return NoKey(request);
}

void Edge::Serve(http::Request request, std::shared_ptr<http::Responder> responder) const {
  if (http::Cors::IsPreflight(request)) {  // browsers send no key with it
    return responder->Send(cors_.Preflight(request, routes_->Allow(request.path)));
  }
  if (auto foreign = sites_.Refuse(request, cors_); foreign.has_value()) {
    return responder->Send(*std::move(foreign));
  }
  if (!IsOpenPath(request.path)) {
    const auto grant = keys_.Find(BearerOf(request.Get("Authorization")));
    if (!grant.has_value()) return responder->Send(NoKey(request));
    request.key_priority = grant->priority;
  }
  routes_->Serve(std::move(request), std::move(responder));
}

void Edge::Complete(const http::Request& request, http::Response* response) const {
  LogLeftOut();
  cors_.AddHeaders(request, response);
  AddDroppedReason(/*begun=*/false, response);
  if (response->noted) return;
  const std::string pattern = routes_->PatternOf(request.path);
  metrics_->CountAnswer(pattern.empty() ? "other" : pattern, response->status);
  // A probe that says no is an answer, not a refusal.
  if (response->status >= 400 && response->error_code != "not_ready") {
    LogRefusal(request, *response);
  }
}

}  // namespace skein::services
