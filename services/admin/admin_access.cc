#include "services/admin/admin_access.h"

#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/file.h"
#include "services/base/same_secret.h"
#include "services/http/error.h"

namespace skein::services {
namespace {

constexpr std::string_view kMapped = "::ffff:";  // prefix of an IPv4 address in IPv6

bool IsLoopback(std::string_view address) {
  if (address.rfind(kMapped, 0) == 0) address.remove_prefix(kMapped.size());
  return address == "::1" || address.rfind("127.", 0) == 0;
}

// The token of "Bearer TOKEN"; "" if it is something else.
std::string BearerOf(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string text(authorization);
  if (absl::AsciiStrToLower(text.substr(0, kBearer.size())) != kBearer) return "";
  return std::string(absl::StripAsciiWhitespace(text.substr(kBearer.size())));
}

}  // namespace

absl::StatusOr<std::string> ReadAdminToken(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  const std::string token(absl::StripAsciiWhitespace(*text));
  if (token.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": contains no token"));
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": a token is one word of printable ASCII characters"));
    }
  }
  return token;
}

std::optional<http::Response> RefuseAdmin(const http::Request& request,
                                          const std::string& token_file) {
  // A browser that has an operator's certificate presents it for pages of other sites as well.
  const bool of_page = !request.Get("Origin").empty();
  if (!of_page && request.certified.has_value() && request.certified->Has(tls::Role::kOperator)) {
    return std::nullopt;
  }
  if (!token_file.empty() && !request.Get("Authorization").empty()) {
    const absl::StatusOr<std::string> token = ReadAdminToken(token_file);
    if (!token.ok()) {
      return http::ErrorResponse(503,
                                 absl::StrCat("--admin-token-file: ", token.status().message()), {},
                                 "no_admin_token");
    }
    if (SameSecret(BearerOf(request.Get("Authorization")), *token)) return std::nullopt;
    http::Response refusal = http::ErrorResponse(
        401, "Authorization: must be 'Bearer ' and the token of --admin-token-file.", {},
        "wrong_admin_token");
    refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
    return refusal;
  }
  const std::string how = token_file.empty()
                              ? "start the process with --admin-token-file and send its token"
                              : "send 'Authorization: Bearer TOKEN'";
  // A page open in a browser on this host could also send the request. Browsers mark such requests.
  if (of_page) {
    return http::ErrorResponse(403, absl::StrCat("Web pages may not do this; ", how, "."), {},
                               "not_loopback");
  }
  if (IsLoopback(request.remote)) return std::nullopt;
  return http::ErrorResponse(
      403,
      absl::StrCat("Not allowed from ", request.remote, ": send it from the host (or from the ",
                   "pod) itself, to its loopback address, or ", how, "."),
      {}, "not_loopback");
}

}  // namespace skein::services
