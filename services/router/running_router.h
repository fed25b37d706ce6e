// The router once its models are loaded: their API, the link to the cluster, offline jobs, the
// console, and the HTTP server that clients call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/admin/admin_server.h"
#include "services/admin/process_status.h"
#include "services/console/console.h"
#include "services/http/body_sink.h"
#include "services/http/byte_budget.h"
#include "services/http/responder.h"
#include "services/http/routes.h"
#include "services/http/server.h"
#include "services/metrics/metrics.h"
#include "services/router/access/access.h"
#include "services/router/access/accounts.h"
#include "services/router/access/audit_log.h"
#include "services/router/api/api.h"
#include "services/router/api/edge.h"
#include "services/router/api/http_metrics.h"
#include "services/router/jobs/offline_jobs.h"
#include "services/router/key_reload.h"
#include "services/router/link/router_shell.h"
#include "services/router/model/model.h"
#include "services/router/model/model_watch.h"
#include "services/router/options.h"
#include "services/router/router_metrics.h"
#include "services/router/spans/request_spans.h"
#include "services/router/trace_recorder.h"
#include "services/tracing/tracing.h"

namespace skein::services {

// Listen, then any of the others on any thread, then Drain once. Everything with a thread is a
// member, in the order in which it is built; destroyed in reverse.
class RunningRouter {
 public:
  // `trace`, `audit` and `tracing` may be null. `tracing`, `metrics` and `admin` outlive it.
  RunningRouter(const RouterOptions& options, Models models, std::unique_ptr<TraceRecorder> trace,
                std::unique_ptr<AuditLog> audit, Tracing* tracing, Metrics* metrics,
                const AdminServer* admin);

  // Serves clients, writes the port file and joins the cluster.
  absl::Status Listen();

  // Probes are served until the last answer has ended; connections that clients keep open are
  // closed, so that their next requests go to another router.
  void Drain();

  // SIGHUP, or an operator's order: the keys and tenants as they are in the files now; a bad file
  // changes nothing. The audit log is opened anew.
  absl::Status Reload();
  void LookAtTenants(const std::function<void(const Access&, Accounts*)>& look);

  ProcessStatus Status();
  // As AdminHooks::order.
  absl::Status Order(const DrainOrder& order);
  // Brings the metrics up to date.
  void RefreshMetrics();
  absl::Status Invariants();

  // A request to a path of the console; it has one.
  void ServeConsole(http::Request request, std::shared_ptr<http::Responder> responder);

 private:
  void ServeClient(http::Request request, const std::shared_ptr<http::Responder>& responder);

  // Connections that clients keep open are closed at the order already, so that no request comes
  // over them to be refused. Any thread.
  void FollowDrainOrder(bool drain);

  // Requests that came in the last moments still get their answers, until `limit`. Idempotent.
  void StopServing(std::chrono::steady_clock::time_point limit);

  // Whose line of a job it is; null: nobody's. Lines come once the edge is there.
  absl::StatusOr<std::shared_ptr<const Caller>> CallerOfJob(const std::string& owner) const;

  // Whether requests have tenants, or are to be written down.
  bool KeepsAccounts() const { return !options_.api_key_file.empty() || audit_ != nullptr; }

  absl::Status ListenForClients();

  // An upload is not read before its key is known to be valid.
  http::BodyPlan PlanBody(const http::Request& head) const;

  // Probes are on the API's port, too, and metrics as an endpoint picker wants them.
  void AddPages(http::Routes* routes);

  // Null: requests are not traced. `shell_` is there when one is slow.
  const RequestTracing* TracingOfRequests();

  std::string Endpoint(uint16_t port) const;

  // What operators see of this router, and order it.
  RouterLink::Self Self();

  absl::Status Ready() const;

  // What was launched before counts from now on. Waits for the loop.
  void Settle();

  // Requests and lines of jobs that have not ended.
  int64_t Running();

  const RouterOptions options_;
  Tracing* const tracing_;  // null: nothing is traced
  RequestTracing request_tracing_;
  Metrics* const metrics_;
  const AdminServer* const admin_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> joined_{false};
  const Models models_;
  const std::unique_ptr<TraceRecorder> trace_;  // null: nothing is recorded
  const std::unique_ptr<AuditLog> audit_;       // null: there is none
  Accounts accounts_;
  RouterMetrics router_metrics_;
  HttpMetrics http_metrics_;
  const std::shared_ptr<http::ByteBudget> bodies_;  // what requests hold
  const RouterShellOptions shell_options_;
  RouterShell shell_;
  ModelWatch watch_;
  RouterApi api_;
  OfflineJobs jobs_;
  http::Routes routes_;
  std::unique_ptr<Edge> edge_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<Console> console_;       // null: --console=false
  std::unique_ptr<KeyReload> key_reload_;  // last: its thread uses the above
};

}  // namespace skein::services
