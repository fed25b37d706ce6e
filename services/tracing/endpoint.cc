#include "services/tracing/endpoint.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kTracesPath = "/v1/traces";

// A colon within [IPV6] names no port.
bool NamesPort(const std::string& authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  return colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
}

}  // namespace

absl::StatusOr<TraceEndpoint> ParseTraceEndpoint(const std::string& text) {
  if (text.compare(0, kScheme.size(), kScheme) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither local nor http://HOST:PORT"));
  }
  const std::string rest = text.substr(kScheme.size());
  const size_t slash = rest.find('/');
  std::string authority = rest.substr(0, slash);
  std::string path = slash == std::string::npos ? "" : rest.substr(slash);
  if (!NamesPort(authority)) authority += ":4318";
  auto address = http::ParseAddress(authority);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not http://HOST:PORT"));
  }
  for (const char c : path) {
    if (c > ' ' && c <= '~' && c != '?' && c != '#') continue;
    return absl::InvalidArgumentError(absl::StrCat("the path of '", text, "' is not plain"));
  }
  while (!path.empty() && path.back() == '/') path.pop_back();
  if (path.size() < kTracesPath.size() ||
      path.compare(path.size() - kTracesPath.size(), kTracesPath.size(), kTracesPath) != 0) {
    path += kTracesPath;
  }
  return TraceEndpoint{*std::move(address), std::move(path)};
}

}  // namespace skein::services
