#include "services/console/console_access.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/admin/admin_access.h"
#include "services/http/error.h"
#include "services/http/site_check.h"

namespace skein::services {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Host without its port, and an IPv6 address without its brackets.
std::string NameOf(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? "" : std::string(host.substr(1, end - 1));
  }
  return std::string(host.substr(0, host.find(':')));
}

// By another page's script, image or frame. A link that a person follows is not meant.
bool IsFromAnotherPage(const http::Request& request) {
  const std::string_view site = request.Get("Sec-Fetch-Site");
  if (site != "cross-site" && site != "same-site") return false;
  return request.method != "GET" || request.Get("Sec-Fetch-Mode") != "navigate" ||
         request.Get("Sec-Fetch-Dest") != "document";
}

}  // namespace

bool IsOwnHost(std::string_view host, const std::vector<std::string>& names) {
  const std::string name = NameOf(host);
  if (name.empty()) return false;
  if (absl::EqualsIgnoreCase(name, "localhost") || IsAddress(name)) return true;
  for (const std::string& own : names) {
    if (!own.empty() && absl::EqualsIgnoreCase(name, own)) return true;
  }
  return false;
}

std::optional<http::Response> RefuseConsole(const http::Request& request,
                                            const std::vector<std::string>& names) {
  const std::string_view host = request.Get("Host");
  if (!IsOwnHost(host, names)) {
    return http::ErrorResponse(403,
                               absl::StrCat("Host '", std::string(host.substr(0, 256)),
                                            "' is no name of this router: use its address, or "
                                            "start it with --console-host for this name."),
                               {}, "unknown_host");
  }
  const std::string_view origin = request.Get("Origin");
  if ((!origin.empty() && !http::IsOriginOf(origin, host)) || IsFromAnotherPage(request)) {
    return http::ErrorResponse(403, "Pages of other sites may not use the console.", {},
                               "other_origin");
  }
  return std::nullopt;
}

std::optional<http::Response> RefuseOrder(const http::Request& request,
                                          const std::string& token_file) {
  if (token_file.empty()) {
    return http::ErrorResponse(
        403, "This console is read-only: its router was started without --admin-token-file.", {},
        "read_only");
  }
  if (request.Get("Authorization").empty()) {
    http::Response refusal = http::ErrorResponse(
        401, "An order needs 'Authorization: Bearer ' and the token of --admin-token-file.", {},
        "no_admin_token");
    refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
    return refusal;
  }
  return RefuseAdmin(request, token_file);
}

void AddConsoleHeaders(http::Response* response) {
  for (const auto& [name, value] :
       {std::pair<const char*, const char*>{"Content-Security-Policy", kPolicy},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-cache"}}) {
    response->headers.push_back({name, value});
  }
}

}  // namespace skein::services
