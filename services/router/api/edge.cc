#include "services/router/api/edge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"
#include "services/log/log_limit.h"
#include "services/router/api/api_error_map.h"
#include "services/router/api/identity.h"
#include "services/tracing/context.h"

namespace skein::services {
namespace {

constexpr char kExposedHeaders[] =
    "X-Request-Id, Retry-After, X-Skein-Dropped-Reason, X-LLM-D-Request-Dropped-Reason, "
    "X-Skein-Warning, X-Skein-Exceeded, X-RateLimit-Limit-Requests, X-RateLimit-Limit-Tokens, "
    "X-RateLimit-Remaining-Requests, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Requests, "
    "X-RateLimit-Reset-Tokens";

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

http::Response HeldOff(int64_t held_us) {
  return ToResponse(
      {429, "This address has sent too many API keys that are not valid. Retry later.", "",
       "too_many_wrong_keys"},
      held_us);
}

// `caller`: whose key it has; null: the request's headers may name a tenant.
void LogRefusal(const http::Request& request, const http::Response& response,
                const Caller* caller) {
  ClientHints hints;
  ReadHints(request.headers, &hints);
  if (caller != nullptr) hints.tenant = caller->tenant;
  const auto trace = ParseTraceparent(request.Get("traceparent"));
  LogLimited(RefusalKind(response.status, response.error_code),
             response.status >= 500 ? Level::kWarning : Level::kInfo, "request",
             {{"request_id", request.id},
              {"trace_id", trace.has_value() ? Hex(trace->trace) : ""},
              {"method", std::string_view(request.method).substr(0, 32)},
              {"path", std::string_view(request.path).substr(0, 256)},
              {"status", response.status},
              {"outcome", "refused"},
              {"code", response.error_code},
              {"param", response.error_param},
              {"error", response.error},
              {"session", hints.session},
              {"tenant", hints.tenant},
              {"key", caller == nullptr ? "" : caller->key_id},
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
  constexpr std::string_view kOpen[] = {"/livez", "/readyz", "/health", "/ping"};
  return std::find(std::begin(kOpen), std::end(kOpen), path) != std::end(kOpen);
}

absl::StatusOr<std::unique_ptr<Edge>> Edge::Create(const EdgeOptions& options,
                                                   const http::Routes* routes,
                                                   RouterMetrics* metrics) {
  std::unique_ptr<Edge> edge(new Edge(options, routes, metrics));
  if (absl::Status status = edge->ReadKeys(); !status.ok()) return status;
  auto cors =
      http::Cors::Create(options.allowed_origins.empty() ? DefaultOrigins(edge->access_.required())
                                                         : options.allowed_origins,
                         kExposedHeaders);
  if (!cors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--allowed-origins: ", cors.status().message()));
  }
  edge->cors_ = *std::move(cors);
  const bool only_here = http::IsLoopbackHost(options.host) && !edge->access_.required();
  if (only_here || !options.allowed_hosts.empty()) {
    edge->sites_ = http::SiteCheck(options.allowed_hosts);
  }
  return edge;
}

absl::Status Edge::Took(absl::Status read) {
  if (read.ok() && accounts_ != nullptr) accounts_->SetLimits(access_.tenants());
  return read;
}

std::optional<http::Response> Edge::Admit(http::Request* request) {
  if (auto foreign = sites_.Refuse(*request, cors_); foreign.has_value()) return foreign;
  if (IsOpenPath(request->path)) return std::nullopt;
  Access::Found found = access_.Admit(request->Get("Authorization"), request->remote);
  if (found.held_us > 0) return HeldOff(found.held_us);
  if (!found.admitted) return NoKey(*request);
  request->caller = std::move(found.caller);
  return std::nullopt;
}

void Edge::Serve(http::Request request, std::shared_ptr<http::Responder> responder) {
  if (http::Cors::IsPreflight(request)) {  // browsers send no key with it
    return responder->Send(cors_.Preflight(request, routes_->Allow(request.path)));
  }
  if (auto refusal = Admit(&request)) return responder->Send(*std::move(refusal));
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
    const auto caller = access_.CallerOf(request.Get("Authorization"));
    static const Caller kNobody;  // no header may say whose request it is where keys do
    LogRefusal(request, *response,
               caller == nullptr && access_.required() ? &kNobody : caller.get());
  }
}

}  // namespace skein::services
