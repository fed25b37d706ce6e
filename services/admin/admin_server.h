// The admin port of every process: probes, status, drain, metrics and debug pages. It opens before
// anything slow happens, so that probes see why the process waits.
//
// docs/admin.md has the table of endpoints.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/admin/process_status.h"
#include "services/flags/flags.h"
#include "services/http/routes.h"

namespace skein::services {

struct AdminOptions {
  std::string host;  // "": the service's host
  int64_t port = 0;
  std::string port_file;
  std::string token_file;

  // --admin-host, --admin-port, --admin-port-file, --admin-token-file.
  void Register(FlagSet* flags);
};

struct DrainOrder {
  bool drain = true;   // false: serve again
  bool force = false;  // drain even if nothing else would serve
};

// What the pages show and do. Called on the server's threads, until its Stop.
struct AdminHooks {
  std::string service;  // "router", "prefill-worker" ...
  std::function<ProcessStatus()> status;
  std::function<absl::Status()> live;  // see http::AdminPages::live
  // May block for a second. FAILED_PRECONDITION gives the reason of a refusal.
  std::function<absl::Status(const DrainOrder&)> order;
  std::function<std::string()> metrics;      // the Prometheus text format
  http::PageFn metrics_page = nullptr;       // see http::AdminPages::metrics_page
  std::function<absl::Status()> invariants;  // not OK: what is violated; empty: no such page
  std::function<void(http::Routes*)> more;   // further pages; may be empty
  // Names that a Host header may have at a loopback address, as http::SiteCheck takes them.
  std::vector<std::string> hosts = {};
};

class AdminServer {
 public:
  // Listens and writes the port file. `service_host` is used when --admin-host is not given.
  // UNAVAILABLE names the flag.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const AdminOptions& options,
                                                            const std::string& service_host,
                                                            AdminHooks hooks);
  ~AdminServer();  // Stop(0)

  uint16_t port() const;
  // Answers clients that wait for a drain, then stops like http::Server::Stop.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Pages;
  explicit AdminServer(std::unique_ptr<Pages> pages);

  std::unique_ptr<Pages> pages_;
};

}  // namespace skein::services
