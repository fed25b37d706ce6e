// The operators' part of the router's admin port, for those with a key of --admin-key-file:
//   GET /admin/tenants        limits, keys' ids and use of every tenant, at this router
//   GET /admin/tenants/NAME   of one
//   POST /admin/reload        reads the files of keys and tenants anew, as SIGHUP does
// Without that flag there are no such pages. Addresses that try keys are held off here, too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/routes.h"
#include "services/router/access/access.h"
#include "services/router/access/accounts.h"

namespace skein::services {

// A tenant as JSON, without a line's end. `tenant` null: it is in no file.
std::string TenantJson(const std::string& name, const Tenant* tenant,
                       const std::vector<std::string>& key_ids,
                       const scheduler::tenants::TenantState& state);

class TenantAdmin {
 public:
  // What the pages show and do. Called on the server's threads. False, or empty: the router is
  // starting or stopping.
  struct Hooks {
    // Calls it with the files as they were read and the accounts.
    std::function<bool(const std::function<void(const Access&, Accounts*)>&)> look;
    std::function<std::optional<absl::Status>()> reload;
  };

  // Reads the keys. INVALID_ARGUMENT and NOT_FOUND name the flag.
  static absl::StatusOr<std::unique_ptr<TenantAdmin>> Open(const std::string& key_file,
                                                           Hooks hooks);
  // It outlives the routes' server.
  void AddRoutes(http::Routes* routes);
  // Reads the operators' keys anew.
  absl::Status ReadKeys() { return access_.Read(); }

 private:
  TenantAdmin(const std::string& key_file, Hooks hooks)
      : access_({.key_file = key_file, .key_flag = "admin-key-file"}), hooks_(std::move(hooks)) {}
  // Empty: the request may go on.
  std::optional<http::Response> Refusal(const http::Request& request);
  http::Response ListTenants();
  http::Response ShowTenant(const http::Request& request);
  http::Response Reload(const http::Request& request);

  Access access_;
  const Hooks hooks_;
};

}  // namespace skein::services
