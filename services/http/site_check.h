// SiteCheck: refuses requests that a web page of another site makes through a visitor's browser, to
// a server that takes requests without a key. Two ways are known:
//
// - A page posts a form, a file or text to this server. Browsers ask no leave (no preflight) for
//   these. They name the page's site in the header Origin, or say Sec-Fetch-Site: cross-site.
// - DNS rebinding: the page's own name is made to resolve to this machine, so that the browser
// takes
//   this server for the page's own site. The Host header still has that name.
//
// A program that is no browser can send any header, and is not meant here: keys stop it.
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

class SiteCheck {
 public:
  // Any Host header is taken.
  SiteCheck() = default;
  // Names in Host headers are `names`, in any case, besides addresses, localhost and names without
  // a dot, which no other site can have. `flag`: how an operator can allow further ones; may be
  // empty.
  explicit SiteCheck(const std::vector<std::string>& names, std::string flag = "--allowed-hosts");

  // The answer to such a request: 403, with the code host_not_allowed or origin_not_allowed;
  // nullopt: it is none. `cors` says whose pages may use this server; pages of this server's own
  // origin may always.
  std::optional<Response> Refuse(const Request& request, const Cors& cors) const;
  // The part that concerns the Host header.
  std::optional<Response> RefuseHost(const Request& request) const;

 private:
  bool checks_hosts_ = false;
  std::string flag_;
  std::vector<std::string> names_;  // lower case
};

}  // namespace skein::services::http
