// Cross-origin resource sharing (the Fetch standard, section 3.3): which pages' scripts may read
// what this server answers. No cookies or other credentials of a browser are asked for, so "*" lets
// a page do what any program that reaches the server can.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/message.h"

namespace skein::services::http {

class Cors {
 public:
  // `origins`: "*" for any, or each "scheme://host[:port]"; a port of "*" is any port. Empty: none.
  // `exposed`: the headers of answers that scripts may read, comma-separated. INVALID_ARGUMENT
  // names an origin that is none.
  static absl::StatusOr<Cors> Create(const std::vector<std::string>& origins, std::string exposed);

  // Whether a browser asks for leave to send another request.
  static bool IsPreflight(const Request& request);
  // The answer to it: 204, or 403 that names the origin. `methods`: of the path, as in Allow; when
  // empty the method that is asked for, so that the request itself gets the server's 404.
  Response Preflight(const Request& request, const std::string& methods) const;
  // Adds what lets the script that sent `request` read the answer, when its origin is allowed.
  void AddHeaders(const Request& request, Response* response) const;

 private:
  bool Allows(std::string_view origin) const;

  bool any_ = false;
  std::vector<std::string> origins_;
  std::string exposed_;
};

}  // namespace skein::services::http
