#include "services/router/router_pages.h"

#include <utility>

#include "services/console/console.h"
#include "services/http/error.h"
#include "services/http/routes.h"
#include "services/log/log.h"
#include "services/metrics/metrics_page.h"
#include "services/tracing/trace_page.h"

namespace skein::services {

absl::Status RouterPages::OpenTenantAdmin(const std::string& key_file) {
  if (key_file.empty()) return absl::OkStatus();
  auto admin = TenantAdmin::Open(key_file, {.look =
                                                [this](const auto& look) {
                                                  return router_.With([&](RunningRouter& running) {
                                                    running.LookAtTenants(look);
                                                  });
                                                },
                                            .reload = [this] { return Reload(); }});
  if (!admin.ok()) return admin.status();
  tenant_admin_ = *std::move(admin);
  return absl::OkStatus();
}

std::optional<absl::Status> RouterPages::Reload() {
  std::optional<absl::Status> read;
  router_.With([&read](RunningRouter& running) { read = running.Reload(); });
  if (tenant_admin_ == nullptr) return read;
  absl::Status own = tenant_admin_->ReadKeys();
  if (!own.ok()) {
    LogError("operators' keys not reloaded; the previous keys stay valid",
             {{"reason", std::string(own.message())}});
  }
  if (read.has_value()) read->Update(own);
  return read;
}

void RouterPages::WaitFor(const std::string& what) {
  std::lock_guard lock(mutex_);
  reason_ = what;
}

AdminHooks RouterPages::Hooks(bool exemplars) {
  AdminHooks hooks = PlainHooks();
  if (exemplars) {
    hooks.metrics_page = [this](const http::Request& request) {
      return MetricsPage(request, [this](Metrics::Format format) { return Render(format); });
    };
  }
  return hooks;
}

void RouterPages::Attach(RunningRouter* router) {
  router_.Put(router);
  ObeyEarlyOrder();
}

void RouterPages::ObeyEarlyOrder() {
  router_.With([this](RunningRouter& running) {
    if (drain_.load()) running.Order({.drain = true, .force = true}).IgnoreError();
  });
}

AdminHooks RouterPages::PlainHooks() {
  return {.service = "router",
          .status = [this] { return Status(); },
          .order = [this](const DrainOrder& order) { return Order(order); },
          .metrics = [this] { return Render(Metrics::Format::kPrometheus); },
          .invariants = [this] { return Invariants(); },
          .more =
              [this](http::Routes* routes) {
                AddTracePage([this] { return tracing_ != nullptr ? tracing_->recent() : nullptr; },
                             routes);
                const auto serve = [this](http::Request request,
                                          const std::shared_ptr<http::Responder>& responder) {
                  ServeConsole(std::move(request), responder);
                };
                if (console_) AddConsoleRoutes(serve, routes);
                if (tenant_admin_ != nullptr) tenant_admin_->AddRoutes(routes);
              }};
}

std::string RouterPages::Render(Metrics::Format format) {
  router_.With([](RunningRouter& running) { running.RefreshMetrics(); });
  process_.Refresh();
  return metrics_.Render(format);
}

ProcessStatus RouterPages::Status() {
  ProcessStatus status{.role = "router", .state = ProcessState::kLoading};
  status.safe_to_delete = true;
  if (router_.With([&status](RunningRouter& running) { status = running.Status(); })) return status;
  std::lock_guard lock(mutex_);
  if (!reason_.empty()) status.state = ProcessState::kWaiting;
  status.reason =
      reason_.empty() ? "loading the models' tokenizers" : "waiting for the model: " + reason_;
  return status;
}

absl::Status RouterPages::Order(const DrainOrder& order) {
  absl::Status obeyed;
  if (router_.With([&](RunningRouter& running) { obeyed = running.Order(order); })) return obeyed;
  drain_.store(order.drain);
  ObeyEarlyOrder();  // it has begun meanwhile
  return obeyed;
}

void RouterPages::ServeConsole(http::Request request,
                               const std::shared_ptr<http::Responder>& responder) {
  const bool served = router_.With(
      [&](RunningRouter& running) { running.ServeConsole(std::move(request), responder); });
  if (served) return;
  responder->Send(
      http::ErrorResponse(503, "The router is starting, or stops. Retry.", {}, "not_started"));
}

absl::Status RouterPages::Invariants() {
  absl::Status found = absl::UnavailableError("starting or stopping");
  router_.With([&found](RunningRouter& running) { found = running.Invariants(); });
  return found;
}

}  // namespace skein::services
