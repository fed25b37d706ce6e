// The admin port that every process has: probes, status, drain, metrics and debug pages. It opens
// before anything slow happens, so that probes see what is waited for.
//
// docs/admin.md has the table of endpoints.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/admin/process_status.h"
#include "services/flags/flags.h"
#include "services/http/routes.h"

namespace skein::services {

struct AdminOptions {
  std::string host;  // "": that of the service
  int64_t port = 0;
  std::string port_file;
  std::string token_file;

  // --admin-host, --admin-port, --admin-port-file, --admin-token-file.
  void Register(FlagSet* flags);
};

struct DrainOrder {
  bool drain = true;   // false: take work again
  bool force = false;  // drain even if nothing else serves in its place
};

// What the process behind the port tells and does. Called on threads of the server, until its Stop.
struct AdminHooks {
  std::string service;  // "router", "prefill-worker" ...
  std::function<ProcessStatus()> status;
  std::function<absl::Status()> live;  // as http::AdminPages::live
  // May block for a second. FAILED_PRECONDITION: refused, and why.
  std::function<absl::Status(const DrainOrder&)> order;
  std::function<std::string()> metrics;     // the Prometheus text format
  std::function<std::string()> invariants;  // JSON; empty: there is no such page
  std::function<void(http::Routes*)> more;  // further pages; may be empty
};

class AdminServer {
 public:
  // Listens and writes the port file. `service_host`: the address where --admin-host is not given.
  // UNAVAILABLE names the flag.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const AdminOptions& options,
                                                            const std::string& service_host,
                                                            AdminHooks hooks);
  ~AdminServer();  // Stop(0)

  uint16_t port() const;
  // Clients that wait for a drain are answered; then as http::Server::Stop.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Pages;
  explicit AdminServer(std::unique_ptr<Pages> pages);

  std::unique_ptr<Pages> pages_;
};

}  // namespace skein::services
