// What the router's admin server shows and does, from the process's start on: also while the router
// waits for its models and after it has stopped.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/admin/admin_server.h"
#include "services/admin/process_status.h"
#include "services/admin/slot.h"
#include "services/http/responder.h"
#include "services/metrics/metrics.h"
#include "services/metrics/process_metrics.h"
#include "services/router/access/tenant_admin.h"
#include "services/router/running_router.h"
#include "services/tracing/tracing.h"

namespace skein::services {

// Any thread, unless it says otherwise. Outlives the admin server.
class RouterPages {
 public:
  explicit RouterPages(bool console) : console_(console) {}

  // ---- before the admin server starts ----
  // Empty: there are no pages of tenants. INVALID_ARGUMENT and NOT_FOUND name the flag.
  absl::Status OpenTenantAdmin(const std::string& key_file);
  // `tracing` outlives the admin server; null: tracing is off.
  void ShowTracesOf(Tracing* tracing) { tracing_ = tracing; }
  // `exemplars`: scrapers are offered a format that has them.
  AdminHooks Hooks(bool exemplars);

  // What the router waits for; empty: nothing.
  void WaitFor(const std::string& what);

  // `router` listens: the pages show it, and it obeys what was ordered before. Not owned.
  void Attach(RunningRouter* router);
  // Waits until no page uses it. Before it is destroyed.
  void Detach() { router_.Take(); }

  // The files of keys and tenants, and operators' keys, as they are now. Empty: there is no router
  // now.
  std::optional<absl::Status> Reload();

  Metrics* metrics() { return &metrics_; }

 private:
  AdminHooks PlainHooks();
  std::string Render(Metrics::Format format);
  ProcessStatus Status();
  absl::Status Order(const DrainOrder& order);
  void ObeyEarlyOrder();
  void ServeConsole(http::Request request, const std::shared_ptr<http::Responder>& responder);
  absl::Status Invariants();

  Metrics metrics_;
  Slot<RunningRouter> router_;  // while it listens
  Tracing* tracing_ = nullptr;  // null: tracing is off
  const bool console_;
  ProcessMetrics process_{"router", &metrics_};
  std::unique_ptr<TenantAdmin> tenant_admin_;  // null: no --admin-key-file
  std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
  std::atomic<bool> drain_{false};
};

}  // namespace skein::services
