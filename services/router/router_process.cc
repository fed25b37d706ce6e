#include "services/router/router_process.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/device/cpu_device.h"
#include "services/admin/admin_server.h"
#include "services/admin/model_wait.h"
#include "services/admin/slot.h"
#include "services/admin/start_signals.h"
#include "services/base/process.h"
#include "services/base/random_bits.h"
#include "services/base/signals.h"
#include "services/base/version.h"
#include "services/console/console.h"
#include "services/http/admin.h"
#include "services/http/error.h"
#include "services/http/server.h"
#include "services/log/log.h"
#include "services/log/log_limit.h"
#include "services/log/repeat_limit.h"
#include "services/metrics/metrics.h"
#include "services/metrics/metrics_page.h"
#include "services/metrics/process_metrics.h"
#include "services/router/access/access.h"
#include "services/router/access/accounts.h"
#include "services/router/access/audit_log.h"
#include "services/router/access/tenant_admin.h"
#include "services/router/api/api.h"
#include "services/router/api/cluster_page.h"
#include "services/router/api/edge.h"
#include "services/router/api/http_metrics.h"
#include "services/router/jobs/offline_jobs.h"
#include "services/router/spans/request_spans.h"
#include "services/shell/loop.h"
#include "services/tls/security.h"
#include "services/tracing/trace_page.h"
#include "services/tracing/tracing.h"

namespace skein::services {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

RouterShellOptions ShellOptions(const RouterOptions& options) {
  RouterShellOptions out;
  out.core.max_streams = options.max_streams;
  out.core.max_queued = options.max_queued;
  // Requests bring their deadlines; lines of jobs have longer ones.
  out.core.request_deadline_us =
      std::max(static_cast<int64_t>(options.request_deadline_s * 1e6), RouterApi::kLineDeadlineUs);
  out.core.resume_wait_us = static_cast<int64_t>(options.resume_wait_s * 1e6);
  out.orchestrators = options.orchestrators();
  out.incarnation = RandomIncarnation();
  return out;
}

// A process's requests may hold a quarter of its memory, unless --max-held-bytes says otherwise. A
// small machine still takes the longest body that --max-body-bytes allows.
size_t HeldBytesMax(const RouterOptions& options) {
  if (options.max_held_bytes > 0) return static_cast<size_t>(options.max_held_bytes);
  const auto memory = engine::ReadHostMemory({});
  const size_t quarter = memory.ok() ? memory->total_bytes / 4 : size_t{256} << 20;
  return std::max(quarter, 2 * static_cast<size_t>(options.max_body_bytes));
}

http::ServerOptions HttpOptions(const RouterOptions& options,
                                std::shared_ptr<http::ByteBudget> bodies) {
  http::ServerOptions out;
  out.bodies = std::move(bodies);
  out.host = options.host;
  out.port = static_cast<uint16_t>(options.port);
  out.header_bytes_max = static_cast<size_t>(options.max_header_bytes);
  out.body_bytes_max = static_cast<size_t>(options.max_body_bytes);
  out.connections_max = static_cast<size_t>(options.max_connections);
  out.idle_timeout = Milliseconds(options.idle_timeout_s);
  out.read_timeout = Milliseconds(options.read_timeout_s);
  out.write_timeout = Milliseconds(options.write_timeout_s);
  out.answer_timeout = Milliseconds(options.request_deadline_s);
  out.certificates = tls::ProcessSecurity().certificates;
  out.need_certificate = tls::ProcessSecurity().mutual == tls::Mutual::kAll;
  return out;
}

// `trace`, `tracing` and `accounts` may be null.
RouterApiOptions ApiOptions(const RouterOptions& options, TraceRecorder* trace,
                            const RequestTracing* tracing, Accounts* accounts) {
  RouterApiOptions out;
  out.max_prompt_tokens = options.max_prompt_tokens;
  out.max_choices = options.max_choices;
  out.max_streams = options.max_streams;
  out.max_queued = options.max_queued;
  out.default_max_tokens = options.default_max_tokens;
  out.request_deadline_us = static_cast<int64_t>(options.request_deadline_s * 1e6);
  out.strict = options.strict_api;
  out.queue_max = static_cast<size_t>(options.max_streams + 2 * options.max_queued);
  out.trace = trace;
  out.tracing = tracing;
  out.accounts = accounts;
  return out;
}

// The orchestrators of the first cell keep the jobs; their lines may be computed in any cell.
OfflineJobsOptions JobsOptions(
    const RouterOptions& options, uint64_t incarnation,
    const std::shared_ptr<http::ByteBudget>& bodies, const RouterApi* api,
    std::function<absl::StatusOr<std::shared_ptr<const Caller>>(const std::string& owner)> caller) {
  const auto draining = [api] { return api->draining(); };
  return {.client = {.orchestrators = options.orchestrators().front()},
          .files = {.file_bytes_max = static_cast<size_t>(options.max_file_bytes),
                    .bodies = bodies,
                    .draining = draining},
          .batches = {.strict = options.strict_api, .draining = draining},
          .lines = {.router = incarnation,
                    .lines_max = std::min(options.job_lines_max, options.max_streams / 2),
                    .bodies = bodies,
                    .caller = std::move(caller)}};
}

ConsoleOptions ConsoleOptionsOf(const RouterOptions& options, std::vector<std::string> models,
                                uint64_t incarnation) {
  ConsoleOptions out{.cells = options.orchestrators(),
                     .models = std::move(models),
                     .hosts = options.console_hosts,
                     .token_file = options.admin.token_file,
                     .needs_api_key = !options.api_key_file.empty(),
                     .router = absl::StrCat(incarnation)};
  out.hosts.insert(out.hosts.end(),
                   {HostName(), options.host, options.advertise, options.admin.host});
  return out;
}

std::vector<std::string> Names(const Models& models) {
  std::vector<std::string> names;
  for (const auto& [name, model] : models.all()) names.push_back(name);
  return names;
}

// Null without --record-trace.
absl::StatusOr<std::unique_ptr<TraceRecorder>> OpenTrace(const RouterOptions& options) {
  if (options.record_trace.empty()) return nullptr;
  auto trace = TraceRecorder::Open(options.record_trace, MonotonicUs());
  if (!trace.ok()) {
    return absl::UnavailableError(absl::StrCat("--record-trace: ", trace.status().message()));
  }
  LogInfo("requests are recorded", {{"file", (*trace)->path()}});
  return trace;
}

// Null without --audit-log.
absl::StatusOr<std::unique_ptr<AuditLog>> OpenAudit(const RouterOptions& options) {
  if (options.audit_log.empty()) return nullptr;
  auto log = AuditLog::Open({.path = options.audit_log, .bytes_max = options.audit_log_bytes});
  if (!log.ok()) return AboutFlag("audit-log", log.status());
  return log;
}

// Everything with a thread, in the order in which it is built; destroyed in reverse.
class Router {
 public:
  // `trace`, `audit` and `tracing` may be null. `tracing`, `metrics` and `admin` outlive it.
  Router(const RouterOptions& options, Models models, std::unique_ptr<TraceRecorder> trace,
         std::unique_ptr<AuditLog> audit, Tracing* tracing, Metrics* metrics,
         const AdminServer* admin)
      : options_(options),
        tracing_(tracing),
        metrics_(metrics),
        admin_(admin),
        models_(std::move(models)),
        trace_(std::move(trace)),
        audit_(std::move(audit)),
        accounts_(audit_.get()),
        router_metrics_(metrics),
        http_metrics_(metrics),
        shell_options_(ShellOptions(options)),
        shell_(shell_options_),
        watch_(&shell_.channels(), options.orchestrators(), Names(models_)),
        api_(ApiOptions(options, trace_.get(), TracingOfRequests(),
                        KeepsAccounts() ? &accounts_ : nullptr),
             &models_, &shell_, &watch_, &router_metrics_),
        jobs_(
            JobsOptions(options, shell_options_.incarnation, bodies_, &api_,
                        [this](const std::string& owner) { return CallerOfJob(owner); }),
            &shell_.channels(),
            [this](const http::Request& request, const std::shared_ptr<http::Responder>& to,
                   int64_t within_us) { api_.RunLine(request, to, within_us); },
            &router_metrics_, metrics) {
    for (const auto& [name, model] : models_.all()) {
      router_metrics_.AddModel(name, model->max_positions);
    }
    if (options_.tenant_routers > 0) {
      accounts_.SetRouters(options_.tenant_routers);
    } else {
      shell_.WatchRouters([this](int64_t routers) { accounts_.SetRouters(routers); });
    }
    shell_.Start();
    api_.AddRoutes(&routes_);
    jobs_.AddRoutes(&routes_);
    AddPages(&routes_);
  }

  absl::Status Listen() {
    if (absl::Status status = ListenForClients(); !status.ok()) return status;
    if (options_.console) {
      console_ = std::make_unique<Console>(
          ConsoleOptionsOf(options_, Names(models_), shell_options_.incarnation),
          &shell_.channels(),
          [this](http::Request request, const std::shared_ptr<http::Responder>& responder) {
            ServeClient(std::move(request), responder);
          });
    }
    absl::Status status = WritePortFile(options_.port_file, server_->port());
    LogInfo("listening", {{"port", static_cast<int>(server_->port())},
                          {"admin_port", static_cast<int>(admin_->port())}});
    shell_.Join(Self());
    jobs_.lines().Start();
    joined_.store(true);
    return status;
  }

  // SIGHUP, or an operator's order: the keys and tenants as they are in the files now; a bad file
  // changes nothing. The audit log is opened anew.
  absl::Status Reload() {
    if (audit_ != nullptr) audit_->Reopen();
    absl::Status read = edge_->ReadKeys();
    NoteReload(read, /*repeats=*/false);
    return read;
  }
  void LookAtTenants(const std::function<void(const Access&, Accounts*)>& look) {
    look(edge_->access(), &accounts_);
  }

  // Probes are served until the last answer has ended; connections that clients keep open are
  // closed, so that their next requests go to another router.
  void Drain() {
    stopping_.store(true);
    if (console_ != nullptr) console_->Stop();
    jobs_.lines().SetDraining(true);
    api_.BeginDrain();
    server_->BeginDrain();
    const auto limit = std::chrono::steady_clock::now() + Milliseconds(options_.drain_grace_s);
    while (Running() > 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const int64_t cut_off = Running();
    LogInfo("drained", {{"requests_cut_off", cut_off}});
    LogLeftOut(/*at_end=*/true);
    if (cut_off == 0) StopServing(limit);
    jobs_.lines().Leave(std::chrono::milliseconds(500));
    shell_.TellStop();
    shell_.Leave();
    StopServing({});
  }

  ProcessStatus Status() {
    ProcessStatus status{.role = "router",
                         .endpoint = Endpoint(server_->port()),
                         .model = absl::StrJoin(Names(models_), ","),
                         .started = true};
    if (api_.draining()) Settle();
    const scheduler::RouterSnapshot snapshot = shell_.Snapshot();
    status.running = snapshot.submitted + snapshot.streaming;
    status.waiting = snapshot.queued;
    status.in_flight = status.running + status.waiting;
    const absl::Status ready = watch_.Ready();
    if (stopping_.load()) {
      status.state = ProcessState::kStopping;
      status.reason = "stopping: " + WhatIsLeft(status);
    } else if (api_.draining()) {
      status.safe_to_delete = status.in_flight == 0;
      status.state = status.safe_to_delete ? ProcessState::kDrained : ProcessState::kDraining;
      status.reason =
          status.safe_to_delete ? "drained: safe to delete" : "draining: " + WhatIsLeft(status);
    } else if (!ready.ok()) {
      status.reason = absl::StrCat("waiting: ", std::string(ready.message()));
    } else {
      status.state = ProcessState::kServing;
    }
    return status;
  }

  absl::Status Order(const DrainOrder& order) {
    if (stopping_.load() || !joined_.load()) {
      return order.drain ? absl::OkStatus()
                         : absl::FailedPreconditionError("the process is stopping");
    }
    if (order.drain && !order.force) {
      if (absl::Status may = shell_.MayDrain(); !may.ok()) return may;
    }
    FollowDrainOrder(order.drain);
    shell_.OrderDrain(order.drain);
    shell_.ReportSoon();
    return absl::OkStatus();
  }

  // Brings the metrics up to date.
  void RefreshMetrics() {
    const size_t connections = server_ == nullptr ? 0 : server_->stats().connections;
    router_metrics_.Refresh(shell_.Snapshot(), MonotonicUs(), connections);
    router_metrics_.RefreshHeldBytes(*bodies_);
    if (trace_ != nullptr) router_metrics_.RefreshTrace(trace_->written(), trace_->dropped());
    if (tracing_ != nullptr) tracing_->RefreshMetrics();
    if (!KeepsAccounts()) return;
    accounts_.Refresh(metrics_);
    if (audit_ != nullptr) router_metrics_.RefreshAudit(audit_->counts());
    if (edge_ != nullptr) router_metrics_.RefreshKeyRefusals(edge_->access().refusals());
  }

  absl::Status Invariants() {
    const std::string broken = accounts_.CheckInvariants();
    if (!broken.empty()) return absl::InternalError("tenants: " + broken);
    return shell_.CheckInvariants();
  }

  // A request to a path of the console; it has one.
  void ServeConsole(http::Request request, std::shared_ptr<http::Responder> responder) {
    console_->Serve(std::move(request), std::move(responder));
  }

 private:
  void ServeClient(http::Request request, const std::shared_ptr<http::Responder>& responder) {
    auto watched = http_metrics_.Watched(request, routes_.PatternOf(request.path), responder);
    edge_->Serve(std::move(request), std::move(watched));
  }

  // Connections that clients keep open are closed at the order already, so that no request comes
  // over them to be refused. Any thread.
  void FollowDrainOrder(bool drain) {
    jobs_.lines().SetDraining(drain || stopping_.load());
    api_.OrderDrain(drain);
    if (drain) {
      server_->BeginDrain();
    } else if (!stopping_.load()) {
      server_->EndDrain();
    }
  }

  // Requests that came in the last moments still get their answers, until `limit`. Idempotent.
  void StopServing(std::chrono::steady_clock::time_point limit) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    server_->Stop(std::max(left, std::chrono::milliseconds(500)));
  }

  // Whose line of a job it is; null: nobody's. Lines come once the edge is there.
  absl::StatusOr<std::shared_ptr<const Caller>> CallerOfJob(const std::string& owner) const {
    if (!edge_->access().required()) return nullptr;
    return edge_->access().CallerOfTenant(owner);
  }

  // Whether requests have tenants, or are to be written down.
  bool KeepsAccounts() const { return !options_.api_key_file.empty() || audit_ != nullptr; }

  // `repeats`: it is logged in part.
  static void NoteReload(const absl::Status& read, bool repeats) {
    if (read.ok() || (repeats && !AdmitRepeated("keys not reloaded"))) return;
    LogError("API keys not reloaded; the previous keys stay valid",
             {{"reason", std::string(read.message())}});
  }

  // Looks at the files of keys and tenants every --key-reload-s.
  void WatchKeys() {
    key_watch_.Start(
        "keys", [this] { return next_key_look_us_; },
        [this] {
          NoteReload(edge_->ReadChangedKeys(), /*repeats=*/true);
          next_key_look_us_ = MonotonicUs() + KeyReloadUs();
        });
  }
  int64_t KeyReloadUs() const { return static_cast<int64_t>(options_.key_reload_s * 1e6); }

  absl::Status ListenForClients() {
    auto edge = Edge::Create({.allowed_origins = options_.allowed_origins,
                              .api_key_file = options_.api_key_file,
                              .host = options_.host,
                              .allowed_hosts = options_.allowed_hosts,
                              .tenants_file = options_.tenants_file,
                              .accounts = &accounts_},
                             &routes_, &router_metrics_);
    if (!edge.ok()) return edge.status();
    edge_ = *std::move(edge);
    if (options_.key_reload_s > 0 && edge_->access().required()) {
      next_key_look_us_ = MonotonicUs() + KeyReloadUs();
      WatchKeys();
    }
    http::ServerOptions http_options = HttpOptions(options_, bodies_);
    http_options.planned_bytes_max = jobs_.files().body_bytes_max();
    http_options.plan_body = [this](const http::Request& head) { return PlanBody(head); };
    http_options.complete = [edge = edge_.get()](const http::Request& request,
                                                 http::Response* response) {
      edge->Complete(request, response);
    };
    auto started = http::Server::Start(http_options, [this](http::Request request, auto responder) {
      ServeClient(std::move(request), std::move(responder));
    });
    if (!started.ok()) return AboutListening("port", started.status());
    server_ = *std::move(started);
    return absl::OkStatus();
  }

  // An upload is not read before its key is known to be valid.
  http::BodyPlan PlanBody(const http::Request& head) const {
    if (!FilesApi::IsUpload(head)) {
      return {.bytes_max = static_cast<size_t>(options_.max_body_bytes)};
    }
    http::Request asked = head;
    if (auto refusal = edge_->Admit(&asked)) return {.refusal = std::move(refusal)};
    return jobs_.files().PlanBody(asked);
  }

  // Probes are on the API's port, too, and metrics as an endpoint picker wants them.
  void AddPages(http::Routes* routes) {
    http::AddAdminPages({.service = "router",
                         .version = kVersion,
                         .ready = [this] { return Ready(); },
                         .metrics =
                             [this] {
                               RefreshMetrics();
                               return ClusterPage(*metrics_, watch_, shell_.Snapshot(),
                                                  Names(models_));
                             }},
                        routes);
  }

  // Null: requests are not traced. `shell_` is there when one is slow.
  const RequestTracing* TracingOfRequests() {
    if (tracing_ == nullptr) return nullptr;
    request_tracing_ = {.tracer = tracing_->tracer(), .slow = [this](const TraceId& trace) {
                          shell_.loop().Post([this, trace] { shell_.KeepTrace(trace); });
                        }};
    return &request_tracing_;
  }

  std::string Endpoint(uint16_t port) const {
    return absl::StrCat(options_.advertise.empty() ? options_.host : options_.advertise, ":", port);
  }

  // What operators see of this router, and order it.
  RouterLink::Self Self() {
    v1::RouterIdentity identity;
    identity.set_endpoint(Endpoint(server_->port()));
    identity.set_admin_endpoint(Endpoint(admin_->port()));
    identity.set_host(HostName());
    identity.set_pid(getpid());
    identity.set_version(kVersion);
    return {.identity = std::move(identity),
            .draining = [this] { return api_.draining(); },
            .drain =
                [this](bool drain) {
                  FollowDrainOrder(drain);
                  shell_.ReportSoon();
                }};
  }

  absl::Status Ready() const {
    return api_.draining() ? absl::UnavailableError("draining") : watch_.Ready();
  }

  // What was launched before counts from now on. Waits for the loop.
  void Settle() {
    shell_.loop().RunAndWait([] {});
  }

  int64_t Running() {
    Settle();
    const scheduler::RouterSnapshot snapshot = shell_.Snapshot();
    return snapshot.queued + snapshot.submitted + snapshot.streaming + jobs_.lines().Held();
  }

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
  const std::shared_ptr<http::ByteBudget> bodies_ =
      std::make_shared<http::ByteBudget>(HeldBytesMax(options_));
  const RouterShellOptions shell_options_;
  RouterShell shell_;
  ModelWatch watch_;
  RouterApi api_;
  OfflineJobs jobs_;
  http::Routes routes_;
  std::unique_ptr<Edge> edge_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<Console> console_;  // null: --console=false
  int64_t next_key_look_us_ = INT64_MAX;
  Loop key_watch_{1};  // last: its thread uses the above
};

// What the admin pages need, also before there is a router. Outlives the admin server.
class Pages {
 public:
  explicit Pages(bool console) : console_(console) {}

  // Before the admin server starts.
  absl::Status OpenTenantAdmin(const std::string& key_file) {
    if (key_file.empty()) return absl::OkStatus();
    auto admin = TenantAdmin::Open(
        key_file, {.look =
                       [this](const auto& look) {
                         return router.With([&](Router& running) { running.LookAtTenants(look); });
                       },
                   .reload = [this] { return Reload(); }});
    if (!admin.ok()) return admin.status();
    tenant_admin_ = *std::move(admin);
    return absl::OkStatus();
  }

  // Empty: there is no router now.
  std::optional<absl::Status> Reload() {
    std::optional<absl::Status> read;
    router.With([&read](Router& running) { read = running.Reload(); });
    if (tenant_admin_ == nullptr) return read;
    absl::Status own = tenant_admin_->ReadKeys();
    if (!own.ok()) {
      LogError("operators' keys not reloaded; the previous keys stay valid",
               {{"reason", std::string(own.message())}});
    }
    if (read.has_value()) read->Update(own);
    return read;
  }

  void WaitFor(const std::string& what) {
    std::lock_guard lock(mutex_);
    reason_ = what;
  }

  // `exemplars`: scrapers are offered a format that has them.
  AdminHooks Hooks(bool exemplars) {
    AdminHooks hooks = PlainHooks();
    if (exemplars) {
      hooks.metrics_page = [this](const http::Request& request) {
        return MetricsPage(request, [this](Metrics::Format format) { return Render(format); });
      };
    }
    return hooks;
  }

  // After `router` was put: what was ordered before.
  void ObeyEarlyOrder() {
    router.With([this](Router& running) {
      if (drain_.load()) running.Order({.drain = true, .force = true}).IgnoreError();
    });
  }

  Metrics metrics;
  Slot<Router> router;         // while it listens
  Tracing* tracing = nullptr;  // set before the admin server starts; null: tracing is off

 private:
  AdminHooks PlainHooks() {
    return {.service = "router",
            .status = [this] { return Status(); },
            .order = [this](const DrainOrder& order) { return Order(order); },
            .metrics = [this] { return Render(Metrics::Format::kPrometheus); },
            .invariants = [this] { return Invariants(); },
            .more =
                [this](http::Routes* routes) {
                  AddTracePage([this] { return tracing != nullptr ? tracing->recent() : nullptr; },
                               routes);
                  const auto serve = [this](http::Request request,
                                            const std::shared_ptr<http::Responder>& responder) {
                    ServeConsole(std::move(request), responder);
                  };
                  if (console_) AddConsoleRoutes(serve, routes);
                  if (tenant_admin_ != nullptr) tenant_admin_->AddRoutes(routes);
                }};
  }

  std::string Render(Metrics::Format format) {
    router.With([](Router& running) { running.RefreshMetrics(); });
    process_.Refresh();
    return metrics.Render(format);
  }

  ProcessStatus Status() {
    ProcessStatus status{.role = "router", .state = ProcessState::kLoading};
    status.safe_to_delete = true;
    if (router.With([&status](Router& running) { status = running.Status(); })) return status;
    std::lock_guard lock(mutex_);
    if (!reason_.empty()) status.state = ProcessState::kWaiting;
    status.reason =
        reason_.empty() ? "loading the models' tokenizers" : "waiting for the model: " + reason_;
    return status;
  }

  absl::Status Order(const DrainOrder& order) {
    absl::Status obeyed;
    if (router.With([&](Router& running) { obeyed = running.Order(order); })) return obeyed;
    drain_.store(order.drain);
    ObeyEarlyOrder();  // it has begun meanwhile
    return obeyed;
  }

  void ServeConsole(http::Request request, const std::shared_ptr<http::Responder>& responder) {
    const bool served =
        router.With([&](Router& running) { running.ServeConsole(std::move(request), responder); });
    if (served) return;
    responder->Send(
        http::ErrorResponse(503, "The router is starting, or stops. Retry.", {}, "not_started"));
  }

  absl::Status Invariants() {
    absl::Status found = absl::UnavailableError("starting or stopping");
    router.With([&found](Router& running) { found = running.Invariants(); });
    return found;
  }

  const bool console_;
  ProcessMetrics process_{"router", &metrics};
  std::unique_ptr<TenantAdmin> tenant_admin_;  // null: no --admin-key-file
  std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
  std::atomic<bool> drain_{false};
};

// Waits for the models' folders, if the flags say so, and loads what a router needs of them. A stop
// signal ends the process.
absl::StatusOr<Models> LoadModels(const RouterOptions& options, Pages* pages) {
  const EndOnStopSignal end_on_stop_signal;
  for (const std::string& spec : options.models) {
    const std::string folder = spec.substr(spec.find('=') + 1);  // all of it, if there is no '='
    const absl::Status waited =
        WaitForModel(folder, {.tokenizer = true, .weights = false}, options.wait_for_model_s,
                     [pages](const std::string& what) { pages->WaitFor(what); });
    if (!waited.ok()) return waited;
  }
  pages->WaitFor("");
  return Models::Load(options.models);
}

}  // namespace

absl::Status RunRouter(const RouterOptions& options) {
  BlockReloadSignal();
  Pages pages(options.console);
  if (absl::Status s = pages.OpenTenantAdmin(options.admin_key_file); !s.ok()) return s;
  const std::unique_ptr<Tracing> tracing =
      Tracing::Start(options.tracing, ThisProcess("router"), &pages.metrics);
  pages.tracing = tracing.get();
  AdminHooks hooks = pages.Hooks(!options.tracing.endpoint.empty());
  hooks.hosts = options.console_hosts;
  auto admin = AdminServer::Start(options.admin, options.host, std::move(hooks));
  if (!admin.ok()) return admin.status();
  auto models = LoadModels(options, &pages);
  if (!models.ok()) return models.status();
  auto trace = OpenTrace(options);
  if (!trace.ok()) return trace.status();
  auto audit = OpenAudit(options);
  if (!audit.ok()) return audit.status();
  Router router(options, *std::move(models), *std::move(trace), *std::move(audit), tracing.get(),
                &pages.metrics, admin->get());
  if (absl::Status status = router.Listen(); !status.ok()) return status;
  pages.router.Put(&router);
  pages.ObeyEarlyOrder();
  while (AwaitStopOrReloadSignal() == SIGHUP) pages.Reload();
  LogInfo("stopping");
  router.Drain();
  pages.router.Take();
  (*admin)->Stop(std::chrono::milliseconds(100));
  return absl::OkStatus();
}

}  // namespace skein::services
