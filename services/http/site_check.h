// SiteCheck: refuses requests that a web page of another site makes through a visitor's browser, to
// a server that takes requests without a key. Two ways are known:
//
// - A page posts a form, a file or text to this server. Browsers send these without asking the
//   server first (no preflight), but name the page's site in the header Origin, or say
//   Sec-Fetch-Site: cross-site.
// - DNS rebinding: the page's own name is made to resolve to this machine, so that the browser
//   takes this server for the page's own site. The Host header still has that name.
//
// This stops no program other than a browser, which can send any header: keys do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/http/cors.h"
#include "services/http/message.h"

namespace skein::services::http {

// "127.0.0.1", "localhost", "[::1]" and the like: only this machine reaches it.
bool IsLoopbackHost(std::string_view host);

// Whether `origin`, of an Origin header, is that of the server whose Host header is `host`, by http
// or https; case does not matter.
bool IsOriginOf(std::string_view origin, std::string_view host);

class SiteCheck {
 public:
  // Any Host header is taken.
  SiteCheck() = default;
  // A Host header may have one of `names` (case does not matter), an address, localhost, or a name
  // without a dot, which no other site can have. `flag`: with which an operator can allow further
  // names, for the error; may be empty.
  explicit SiteCheck(const std::vector<std::string>& names, std::string flag = "--allowed-hosts");

  // The answer to such a request: 403, with the code host_not_allowed or origin_not_allowed.
  // nullopt: the request is not one of these. `cors` says whose pages may use this server; pages of
  // this server's own origin may always.
  std::optional<Response> Refuse(const Request& request, const Cors& cors) const;
  // The part that concerns the Host header.
  std::optional<Response> RefuseHost(const Request& request) const;

 private:
  bool checks_hosts_ = false;
  std::string flag_;
  std::vector<std::string> names_;  // lower case
};

}  // namespace skein::services::http
