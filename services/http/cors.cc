#include "services/http/cors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/http/error.h"

namespace skein::services::http {
namespace {

constexpr std::string_view kAnyPort = ":*";
constexpr char kPreflightSeconds[] = "600";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// "https://host" or "http://host:port", with nothing after it.
bool IsOrigin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == std::string_view::npos) return false;
  const std::string_view host = text.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?#@ ,") == std::string_view::npos;
}

bool Matches(std::string_view allowed, std::string_view origin) {
  if (!absl::EndsWith(View(allowed), View(kAnyPort))) return allowed == origin;
  const std::string_view host = allowed.substr(0, allowed.size() - kAnyPort.size());
  if (origin.substr(0, host.size()) != host) return false;
  const std::string_view port = origin.substr(host.size());
  return port.empty() || (port[0] == ':' && port.size() > 1 &&
                          std::all_of(port.begin() + 1, port.end(), absl::ascii_isdigit));
}

}  // namespace

absl::StatusOr<Cors> Cors::Create(const std::vector<std::string>& origins, std::string exposed) {
  Cors cors;
  cors.exposed_ = std::move(exposed);
  for (const std::string& origin : origins) {
    if (origin == "*") {
      cors.any_ = true;
    } else if (!IsOrigin(origin)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", origin, "' is not an origin; write '*' or 'scheme://host[:port]'"));
    } else {
      cors.origins_.push_back(absl::AsciiStrToLower(origin));
    }
  }
  return cors;
}

bool Cors::Allows(std::string_view origin) const {
  return any_ || std::any_of(origins_.begin(), origins_.end(),
                             [&](const std::string& allowed) { return Matches(allowed, origin); });
}

bool Cors::IsPreflight(const Request& request) {
  return request.method == "OPTIONS" && !request.Get("Origin").empty() &&
         !request.Get("Access-Control-Request-Method").empty();
}

Response Cors::Preflight(const Request& request, const std::string& methods) const {
  const std::string origin(request.Get("Origin"));
  if (!Allows(origin)) {
    return ErrorResponse(403,
                         "Pages of origin '" + origin.substr(0, 256) +
                             "' may not use this server; its operator can allow them with "
                             "--allowed-origins.",
                         {}, "origin_not_allowed");
  }
  Response response;
  response.status = 204;
  response.content_type.clear();
  const std::string_view asked = request.Get("Access-Control-Request-Headers");
  response.headers = {
      {"Access-Control-Allow-Methods",
       methods.empty() ? std::string(request.Get("Access-Control-Request-Method")) : methods},
      {"Access-Control-Max-Age", kPreflightSeconds}};
  // Listed one by one: "*" would not cover Authorization.
  if (!asked.empty()) {
    response.headers.push_back({"Access-Control-Allow-Headers", std::string(asked)});
  }
  return response;
}

void Cors::AddHeaders(const Request& request, Response* response) const {
  if (!any_) response->headers.push_back({"Vary", "Origin"});
  const std::string_view origin = request.Get("Origin");
  if (origin.empty() || !Allows(origin)) return;
  response->headers.push_back(
      {"Access-Control-Allow-Origin", any_ ? std::string("*") : std::string(origin)});
  if (!exposed_.empty()) {
    response->headers.push_back({"Access-Control-Expose-Headers", exposed_});
  }
}

}  // namespace skein::services::http
