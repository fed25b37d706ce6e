// Which clients may change the state of a process through its admin port, which the whole cluster
// may reach: processes on the same host (in Kubernetes: in the same pod), clients that know the
// token, and those with an operator's certificate.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/http/message.h"

namespace skein::services {

// The token in `path`, without surrounding white space. INVALID_ARGUMENT names the file: it cannot
// be read, or contains no token or more than one word.
absl::StatusOr<std::string> ReadAdminToken(const std::string& path);

// Empty: the request is allowed. Otherwise the refusal: 401: wrong token. 403: no token, and the
// request comes from another host or from a web page. 503: the token file cannot be read now.
// `token_file` is read at each call, because mounted secrets change; "": no token.
std::optional<http::Response> RefuseAdmin(const http::Request& request,
                                          const std::string& token_file);

}  // namespace skein::services
