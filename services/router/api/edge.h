// Between the HTTP server and the router's routes: API keys, cross-origin requests, and the
// headers, log lines and counts of every answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/cors.h"
#include "services/http/responder.h"
#include "services/http/routes.h"
#include "services/http/site_check.h"
#include "services/router/access/access.h"
#include "services/router/access/accounts.h"
#include "services/router/router_metrics.h"

namespace skein::services {

struct EdgeOptions {
  std::vector<std::string> allowed_origins;  // as http::Cors; empty: DefaultOrigins
  std::string api_key_file;
  std::string host = {};  // that the server listens at
  // Names in Host headers. Empty: where no key is required and `host` is a loopback address, only
  // this machine's; elsewhere any.
  std::vector<std::string> allowed_hosts = {};
  std::string tenants_file = {};
  // Told the tenants' limits whenever they are read; outlives the edge. Null: nobody is.
  Accounts* accounts = nullptr;
};

// Any page when requests need a key, since a page of another site has none; otherwise only pages
// that this machine serves, so that no site on the net can use the router through a visitor's
// browser.
std::vector<std::string> DefaultOrigins(bool keys_required);

// Whether requests to `path` never need a key: probes.
bool IsOpenPath(std::string_view path);

class Edge {
 public:
  // `routes` and `metrics` outlive it. INVALID_ARGUMENT names a bad origin or line of the key file.
  static absl::StatusOr<std::unique_ptr<Edge>> Create(const EdgeOptions& options,
                                                      const http::Routes* routes,
                                                      RouterMetrics* metrics);

  // The answer to a request of another site's page (http::SiteCheck), or to one without a valid
  // key; nullopt: it is neither, and its `caller` is set if it has a key. An address that tries
  // keys is held off: 429.
  std::optional<http::Response> Admit(http::Request* request);
  // Answers requests as Admit does, answers preflights, and passes everything else to the routes.
  void Serve(http::Request request, std::shared_ptr<http::Responder> responder);
  // As ServerOptions::complete: adds cross-origin headers and, to 429, 503 and 504, why the request
  // was dropped. Counts the answer and logs a refusal, unless the answer is noted. A flood of
  // refusals is counted whole and logged in part (services/log/log_limit.h).
  void Complete(const http::Request& request, http::Response* response) const;
  // Reads the files of keys and tenants anew; on failure both stay as they were.
  absl::Status ReadKeys() { return Took(access_.Read()); }
  // The same, if one of them has changed.
  absl::Status ReadChangedKeys() { return Took(access_.ReadIfChanged()); }
  const Access& access() const { return access_; }

 private:
  Edge(const EdgeOptions& options, const http::Routes* routes, RouterMetrics* metrics)
      : routes_(routes),
        metrics_(metrics),
        accounts_(options.accounts),
        access_({.key_file = options.api_key_file, .tenants_file = options.tenants_file}) {}
  absl::Status Took(absl::Status read);

  const http::Routes* const routes_;
  RouterMetrics* const metrics_;
  Accounts* const accounts_;
  Access access_;
  http::Cors cors_;
  http::SiteCheck sites_;
};

}  // namespace skein::services
