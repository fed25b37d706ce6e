#include "services/orchestrator/orchestrator_process.h"

#include <chrono>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/log.h"
#include "services/base/metrics.h"
#include "services/base/process.h"
#include "services/base/process_metrics.h"
#include "services/base/signals.h"
#include "services/base/version.h"
#include "services/http/admin.h"
#include "services/http/server.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/planning_options.h"

namespace skein::services {
namespace {

scheduler::OrchestratorConfig ConfigFrom(const OrchestratorOptions& options) {
  scheduler::OrchestratorConfig config;
  // Wall-clock microseconds are above every epoch that an earlier orchestrator gave out.
  config.first_epoch =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count());
  config.max_requests = options.max_requests;
  config.instance_lease_us = static_cast<int64_t>(options.instance_lease_s * 1e6);
  config.request_deadline_us = static_cast<int64_t>(options.request_deadline_s * 1e6);
  return config;
}

void RefreshPlans(const std::string& model, const scheduler::PlanTotals& plans, Metrics* metrics) {
  const auto total = [&](const char* name, const char* help, Metrics::Labels labels, double value) {
    labels["model_name"] = model;
    Metrics::RaiseTo(&metrics->Counter(name, help, labels), value);
  };
  for (const auto& [chunks, count] : plans.plans_by_chunks) {
    total("skein_plans_total", "Plans whose prompt was computed, by the number of chunks.",
          {{"chunks", std::to_string(chunks)}}, static_cast<double>(count));
  }
  for (const auto& [sp, count] : plans.chunks_by_sp) {
    total("skein_plan_chunks_total", "Chunks of these plans, by the number of instances.",
          {{"sp", std::to_string(sp)}}, static_cast<double>(count));
  }
  total("skein_plan_estimated_seconds_total", "Estimated time from a plan to its last chunk's end.",
        {}, plans.estimated_s);
  total("skein_plan_actual_seconds_total", "Actual time from a plan to its last chunk's end.", {},
        plans.actual_s);
  total("skein_plan_error_seconds_total", "Differences of the two, without their signs.", {},
        plans.error_s);
}

void Refresh(const scheduler::OrchestratorSnapshot& snapshot, const absl::Status& invariants,
             Metrics* metrics) {
  const auto gauge = [metrics](const char* state, int64_t value) {
    metrics
        ->Gauge("skein_orchestrator_requests", "Requests that the orchestrator follows, by state.",
                {{"state", state}})
        .Set(static_cast<double>(value));
  };
  gauge("planning", snapshot.planning);
  gauge("assigning", snapshot.assigning);
  gauge("assigned", snapshot.assigned);
  gauge("waiting", snapshot.waiting);
  gauge("reserving", snapshot.reserving);
  gauge("placed", snapshot.placed);
  int64_t prefill = 0;
  for (const scheduler::InstanceStatus& instance : snapshot.instances) {
    prefill += instance.identity.role == scheduler::Role::kPrefill ? 1 : 0;
  }
  const auto instances = [metrics](const char* role, double value) {
    metrics->Gauge("skein_instances", "Live instances, by role.", {{"role", role}}).Set(value);
  };
  instances("prefill", static_cast<double>(prefill));
  instances("decode",
            static_cast<double>(snapshot.instances.size()) - static_cast<double>(prefill));
  Metrics::RaiseTo(&metrics->Counter("skein_requests_submitted_total", "Requests submitted."),
                   static_cast<double>(snapshot.submitted));
  Metrics::RaiseTo(&metrics->Counter("skein_requests_failed_total", "Requests that failed here."),
                   static_cast<double>(snapshot.failed));
  Metrics::RaiseTo(
      &metrics->Counter("skein_instances_lost_total", "Instances whose lease ran out."),
      static_cast<double>(snapshot.instances_lost));
  Metrics::RaiseTo(
      &metrics->Counter("skein_spanning_plans_total", "Plans on more than one instance."),
      static_cast<double>(snapshot.spanning_plans));
  Metrics::RaiseTo(&metrics->Counter("skein_replans_total", "Plans that were given up."),
                   static_cast<double>(snapshot.replans));
  for (const auto& [model, plans] : snapshot.plans) RefreshPlans(model, plans, metrics);
  metrics->Gauge("skein_invariants_ok", "1 while every invariant of the core holds.")
      .Set(invariants.ok() ? 1 : 0);
  metrics->Gauge("skein_epoch", "The last epoch given out.")
      .Set(static_cast<double>(snapshot.last_epoch.value));
}

http::Routes AdminRoutes(OrchestratorShell* shell, Metrics* metrics) {
  http::Routes routes;
  auto process = std::make_shared<ProcessMetrics>("orchestrator", metrics);
  http::AddAdminPages(
      {.service = "orchestrator",
       .version = kVersion,
       .ready =
           [shell] {
             const bool answers =
                 shell->Inspect([](const scheduler::OrchestratorSnapshot&, const absl::Status&) {});
             return answers ? absl::OkStatus() : absl::UnavailableError("stopping");
           },
       .metrics =
           [shell, metrics, process] {
             shell->Inspect([metrics](const scheduler::OrchestratorSnapshot& snapshot,
                                      const absl::Status& invariants) {
               Refresh(snapshot, invariants, metrics);
             });
             process->Refresh();
             return metrics->Render();
           }},
      &routes);
  http::AddJsonPage(
      "/debug/invariants",
      [shell] {
        std::string json = R"({"ok":false,"violated":"stopping"})";
        shell->Inspect([&json](const scheduler::OrchestratorSnapshot&, const absl::Status& status) {
          json = status.ok() ? R"({"ok":true})"
                             : absl::StrCat(R"({"ok":false,"violated":")",
                                            std::string(status.message()), "\"}");
        });
        return json;
      },
      &routes);
  return routes;
}

// The tables are the only part of a profile that may change under a running cluster.
void Reload(const OrchestratorOptions& options, const scheduler::PlanningConfig* running,
            OrchestratorShell* shell) {
  if (running == nullptr) return LogWarning("not reloaded", {{"reason", "there is no --profile"}});
  const auto tables = ReloadTables(options, *running);
  if (!tables.ok()) {
    return LogWarning("not reloaded", {{"reason", std::string(tables.status().message())}});
  }
  shell->ReplaceTables(*tables);
  LogInfo("planning tables reloaded",
          {{"profile", options.profile},
           {"improvement_rates", static_cast<int64_t>(tables->improvement_rates.rows().size())},
           {"rolling", static_cast<int64_t>(tables->rolling.rows().size())}});
}

}  // namespace

absl::Status RunOrchestrator(const OrchestratorOptions& options,
                             std::shared_ptr<const scheduler::PlanningConfig> planning) {
  BlockReloadSignal();
  scheduler::OrchestratorConfig config = ConfigFrom(options);
  config.planning = planning;
  OrchestratorShell shell(config, static_cast<size_t>(options.inbox));
  OrchestratorService service(&shell);
  Metrics metrics;
  const http::Routes routes = AdminRoutes(&shell, &metrics);
  shell.Start();
  auto rpc = ServeRpc(absl::StrCat(options.host, ":", options.port), {&service});
  if (!rpc.ok()) return AboutFlag("port", rpc.status());
  auto admin = http::Server::Start(
      {.host = options.host, .port = static_cast<uint16_t>(options.admin_port), .threads = 1},
      [&routes](http::Request request, std::shared_ptr<http::Responder> responder) {
        routes.Serve(std::move(request), std::move(responder));
      });
  if (!admin.ok()) return AboutFlag("admin-port", admin.status());
  for (const absl::Status& status : {WritePortFile(options.port_file, rpc->port),
                                     WritePortFile(options.admin_port_file, (*admin)->port())}) {
    if (!status.ok()) return status;
  }
  LogInfo("listening",
          {{"grpc_port", rpc->port}, {"admin_port", static_cast<int>((*admin)->port())}});
  while (AwaitStopOrReloadSignal() == SIGHUP) {
    Reload(options, planning.get(), &shell);
  }
  LogInfo("stopping");
  shell.Stop();
  rpc->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  (*admin)->Stop(std::chrono::milliseconds(500));
  return absl::OkStatus();
}

}  // namespace skein::services
