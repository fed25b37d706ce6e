#include "services/router/running_router.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/process.h"
#include "services/base/version.h"
#include "services/http/admin.h"
#include "services/log/log.h"
#include "services/log/log_limit.h"
#include "services/router/api/cluster_page.h"
#include "services/router/component_options.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

std::vector<std::string> Names(const Models& models) {
  std::vector<std::string> names;
  for (const auto& [name, model] : models.all()) names.push_back(name);
  return names;
}

}  // namespace

RunningRouter::RunningRouter(const RouterOptions& options, Models models,
                             std::unique_ptr<TraceRecorder> trace, std::unique_ptr<AuditLog> audit,
                             Tracing* tracing, Metrics* metrics, const AdminServer* admin)
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
      bodies_(std::make_shared<http::ByteBudget>(HeldBytesMax(options_))),
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

absl::Status RunningRouter::Listen() {
  if (absl::Status status = ListenForClients(); !status.ok()) return status;
  if (options_.console) {
    console_ = std::make_unique<Console>(
        ConsoleOptionsOf(options_, Names(models_), shell_options_.incarnation), &shell_.channels(),
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

absl::Status RunningRouter::Reload() {
  if (audit_ != nullptr) audit_->Reopen();
  return key_reload_->Reload();
}

void RunningRouter::LookAtTenants(const std::function<void(const Access&, Accounts*)>& look) {
  look(edge_->access(), &accounts_);
}

void RunningRouter::Drain() {
  stopping_.store(true);
  if (console_ != nullptr) console_->Stop();
  jobs_.lines().SetDraining(true);
  api_.BeginDrain();
  server_->BeginDrain();
  const auto limit = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<int64_t>(options_.drain_grace_s * 1e3));
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

ProcessStatus RunningRouter::Status() {
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

absl::Status RunningRouter::Order(const DrainOrder& order) {
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

void RunningRouter::RefreshMetrics() {
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

absl::Status RunningRouter::Invariants() {
  const std::string broken = accounts_.CheckInvariants();
  if (!broken.empty()) return absl::InternalError("tenants: " + broken);
  return shell_.CheckInvariants();
}

void RunningRouter::ServeConsole(http::Request request,
                                 std::shared_ptr<http::Responder> responder) {
  console_->Serve(std::move(request), std::move(responder));
}

void RunningRouter::ServeClient(http::Request request,
                                const std::shared_ptr<http::Responder>& responder) {
  auto watched = http_metrics_.Watched(request, routes_.PatternOf(request.path), responder);
  edge_->Serve(std::move(request), std::move(watched));
}

void RunningRouter::FollowDrainOrder(bool drain) {
  jobs_.lines().SetDraining(drain || stopping_.load());
  api_.OrderDrain(drain);
  if (drain) {
    server_->BeginDrain();
  } else if (!stopping_.load()) {
    server_->EndDrain();
  }
}

void RunningRouter::StopServing(std::chrono::steady_clock::time_point limit) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      limit - std::chrono::steady_clock::now());
  server_->Stop(std::max(left, std::chrono::milliseconds(500)));
}

absl::StatusOr<std::shared_ptr<const Caller>> RunningRouter::CallerOfJob(
    const std::string& owner) const {
  if (!edge_->access().required()) return nullptr;
  return edge_->access().CallerOfTenant(owner);
}

absl::Status RunningRouter::ListenForClients() {
  auto edge = Edge::Create(EdgeOptionsOf(options_, &accounts_), &routes_, &router_metrics_);
  if (!edge.ok()) return edge.status();
  edge_ = *std::move(edge);
  key_reload_ = std::make_unique<KeyReload>(edge_.get(), options_.key_reload_s);
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

http::BodyPlan RunningRouter::PlanBody(const http::Request& head) const {
  if (!FilesApi::IsUpload(head)) {
    return {.bytes_max = static_cast<size_t>(options_.max_body_bytes)};
  }
  http::Request asked = head;
  if (auto refusal = edge_->Admit(&asked)) return {.refusal = std::move(refusal)};
  return jobs_.files().PlanBody(asked);
}

void RunningRouter::AddPages(http::Routes* routes) {
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

const RequestTracing* RunningRouter::TracingOfRequests() {
  if (tracing_ == nullptr) return nullptr;
  request_tracing_ = {.tracer = tracing_->tracer(), .slow = [this](const TraceId& trace) {
                        shell_.loop().Post([this, trace] { shell_.KeepTrace(trace); });
                      }};
  return &request_tracing_;
}

std::string RunningRouter::Endpoint(uint16_t port) const {
  return absl::StrCat(options_.advertise.empty() ? options_.host : options_.advertise, ":", port);
}

RouterLink::Self RunningRouter::Self() {
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

absl::Status RunningRouter::Ready() const {
  return api_.draining() ? absl::UnavailableError("draining") : watch_.Ready();
}

void RunningRouter::Settle() {
  shell_.loop().RunAndWait([] {});
}

int64_t RunningRouter::Running() {
  Settle();
  const scheduler::RouterSnapshot snapshot = shell_.Snapshot();
  return snapshot.queued + snapshot.submitted + snapshot.streaming + jobs_.lines().Held();
}

}  // namespace skein::services
