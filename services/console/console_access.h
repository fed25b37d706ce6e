// Which requests to the console are answered. It is served where only operators reach it, but a
// browser on an operator's machine also runs pages of strangers, which may send requests there.
//
// - A page that has made its own name resolve to this address (DNS rebinding) names that name in
//   Host. Only addresses, "localhost" and names of this router are taken.
// - Other pages may send requests, but the browser says so, in Origin or Sec-Fetch-Site.
// - An order needs the operators' token (admin_access.h), also from the same host.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/http/message.h"

namespace skein::services {

// Whether a page of that Host header (with or without a port) can only come from here: it is an
// address, "localhost", or one of `names` (ASCII case ignored).
bool IsOwnHost(std::string_view host, const std::vector<std::string>& names);

// Empty: the request may be answered. 403 otherwise.
std::optional<http::Response> RefuseConsole(const http::Request& request,
                                            const std::vector<std::string>& names);

// Empty: the order is allowed. 403: no `token_file`, so nobody may. 401: no token, or a wrong one.
std::optional<http::Response> RefuseOrder(const http::Request& request,
                                          const std::string& token_file);

// A page may run nothing but the console's own files, send nothing elsewhere, and be in no frame of
// another page.
void AddConsoleHeaders(http::Response* response);

}  // namespace skein::services
