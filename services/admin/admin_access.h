// Which clients may change the state of a process through its admin port, which the whole cluster
// may reach: processes of the same host (in Kubernetes: of the same pod), and those that know the
// token.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/http/message.h"

namespace skein::services {

// The token in `path`, without the white space around it. INVALID_ARGUMENT names the file: it
// cannot be read, or holds no token or more than one word.
absl::StatusOr<std::string> ReadAdminToken(const std::string& path);

// Nothing: the request may do it. Otherwise the answer that refuses: 401, a token that is wrong;
// 403, it comes from another host or from a page in a browser and has none; 503, the file of the
// token cannot be read now. `token_file` is read at each call, since mounted secrets change; "":
// there is none.
std::optional<http::Response> RefuseAdmin(const http::Request& request,
                                          const std::string& token_file);

}  // namespace skein::services
