#include "services/http/site_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/http/error.h"

namespace skein::services::http {
namespace {

// "Example.org:8000" → "example.org"; "[::1]:8000" → "[::1]".
std::string NameOf(std::string_view host) {
  const size_t end = host.rfind(']');
  const size_t colon = host.find(':', end == std::string_view::npos ? 0 : end);
  return absl::AsciiStrToLower(std::string(host.substr(0, colon)));
}

// No name that somebody on the web could own and point here: an address, since the last label of a
// DNS name is never a number (RFC 3696), or a name without a dot.
bool IsNobodys(const std::string& name) {
  if (name.find('.') == std::string::npos || name[0] == '[') return true;
  const std::string last = name.substr(name.rfind('.') + 1);
  return !last.empty() && std::all_of(last.begin(), last.end(), absl::ascii_isdigit);
}

bool IsLocalhost(const std::string& name) {
  return name == "localhost" || absl::EndsWith(name, ".localhost");
}

bool ChangesState(const Request& request) {
  return request.method != "GET" && request.method != "HEAD" && request.method != "OPTIONS";
}

}  // namespace

bool IsOriginOf(std::string_view origin, std::string_view host) {
  const std::string given(origin), own(host);
  return !own.empty() && (absl::EqualsIgnoreCase(given, "http://" + own) ||
                          absl::EqualsIgnoreCase(given, "https://" + own));
}

bool IsLoopbackHost(std::string_view host) {
  const std::string name = absl::AsciiStrToLower(std::string(host));
  // "127.example.org" is a name like any other.
  const bool is_127 =
      absl::StartsWith(name, "127.") && name.find_first_not_of("0123456789.") == std::string::npos;
  return IsLocalhost(name) || name == "::1" || name == "[::1]" || is_127;
}

SiteCheck::SiteCheck(const std::vector<std::string>& names, std::string flag)
    : checks_hosts_(true), flag_(std::move(flag)) {
  names_.reserve(names.size());
  for (const std::string& name : names) names_.push_back(NameOf(name));
}

std::optional<Response> SiteCheck::RefuseHost(const Request& request) const {
  if (!checks_hosts_) return std::nullopt;
  const std::string name = NameOf(request.Get("Host"));
  const bool own = IsNobodys(name) || IsLocalhost(name) ||
                   std::find(names_.begin(), names_.end(), name) != names_.end();
  if (own) return std::nullopt;
  const std::string how =
      flag_.empty() ? "." : absl::StrCat("; its operator can allow it with ", flag_, ".");
  return ErrorResponse(403,
                       absl::StrCat("Host: '", name.substr(0, 256),
                                    "' is not a name of this server, which listens for this "
                                    "machine only",
                                    how),
                       {}, "host_not_allowed");
}

std::optional<Response> SiteCheck::Refuse(const Request& request, const Cors& cors) const {
  if (auto refusal = RefuseHost(request); refusal.has_value()) return refusal;
  if (!ChangesState(request)) return std::nullopt;
  const std::string origin(request.Get("Origin"));
  const bool foreign =
      origin.empty()
          ? absl::EqualsIgnoreCase(std::string(request.Get("Sec-Fetch-Site")), "cross-site") &&
                !cors.AllowsAny()
          : !cors.Allows(origin) && !IsOriginOf(origin, request.Get("Host"));
  if (!foreign) return std::nullopt;
  return ErrorResponse(403,
                       absl::StrCat("Pages of origin '", origin.substr(0, 256),
                                    "' may not use this server; its operator can allow them with "
                                    "--allowed-origins."),
                       {}, "origin_not_allowed");
}

}  // namespace skein::services::http
