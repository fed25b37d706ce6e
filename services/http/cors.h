// Cross-origin resource sharing (Fetch standard, section 3.3): which web pages' scripts may read
// this server's answers. Cookies and other browser credentials are not used, so "*" gives a page no
// more access than any program that reaches the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/message.h"

namespace skein::services::http {

class Cors {
 public:
  // `origins`: "*" for any, or entries "scheme://host[:port]"; port "*" is any port. Empty: none.
  // `exposed`: response headers that scripts may read, comma-separated. INVALID_ARGUMENT names a
  // malformed origin.
  static absl::StatusOr<Cors> Create(const std::vector<std::string>& origins, std::string exposed);

  // Whether this is a browser's preflight request.
  static bool IsPreflight(const Request& request);
  // The answer to a preflight: 204, or 403 naming the origin. `methods`: those of the path, as in
  // Allow. If empty, the requested method, so that the request itself gets the server's 404.
  Response Preflight(const Request& request, const std::string& methods) const;
  // If the origin is allowed, adds the headers that let its script read the answer.
  void AddHeaders(const Request& request, Response* response) const;

  // Whether pages of this origin may use the server.
  bool Allows(std::string_view origin) const;
  bool AllowsAny() const { return any_; }

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
  std::string exposed_;
};

}  // namespace skein::services::http
