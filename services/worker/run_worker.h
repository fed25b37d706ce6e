// The life of a worker process of either role. Internal to services/worker.
#pragma once

#include <string>

#include "services/worker/worker_common.h"

namespace skein::services {

// What the admin pages ask of a running shell, PrefillShell or DecodeShell.
template <typename Shell>
WorkerPages PagesOf(const std::string& role, const std::string& model, Shell* shell,
                    std::function<void(Metrics*)> refresh) {
  const auto unknown = [] { return absl::UnavailableError("starting or stopping"); };
  return {.role = role,
          .model = model,
          .ready =
              [shell, unknown] {
                absl::Status status = unknown();
                shell->Inspect([&status](const auto& snapshot, const absl::Status&) {
                  status = ReadyOf(snapshot);
                });
                return status;
              },
          .invariants =
              [shell, unknown] {
                absl::Status status = unknown();
                shell->Inspect([&status](const auto&, const absl::Status& invariants) {
                  status = invariants;
                });
                return status;
              },
          .refresh = std::move(refresh)};
}

// Loads the engine, listens, runs the core until a stop signal, drains. `config_of` makes the
// core's config from engine and bound ports; `refresh` brings the metrics up to date.
template <typename Shell, typename Service, typename ConfigOf, typename Refresh>
absl::Status RunWorker(const WorkerOptions& options, scheduler::Role role, ConfigOf config_of,
                       Refresh refresh) {
  absl::StatusOr<WorkerEngine> engine = MakeWorkerEngine(options, role);
  if (!engine.ok()) return engine.status();
  const std::string model = ServedName(options);
  LogEngine(engine->engine->Spec(), model);
  Shell shell(&*engine, options.orchestrator, static_cast<size_t>(options.inbox));
  Service service(&shell);
  Metrics metrics;
  const http::Routes routes =
      WorkerRoutes(PagesOf(role == scheduler::Role::kPrefill ? "prefill" : "decode", model, &shell,
                           [&shell, &model, refresh](Metrics* m) { refresh(&shell, model, m); }),
                   &metrics);
  absl::StatusOr<WorkerServers> servers = ListenAsWorker(options, &service, &routes);
  if (!servers.ok()) return servers.status();
  prometheus::Histogram& step_tokens = StepTokens(engine->engine->Spec(), model, &metrics);
  shell.ObserveSteps(&step_tokens);
  Latch drained;
  shell.Start(config_of(options, *engine, *servers), [&drained] { drained.Set(); });
  return ServeUntilDrained(
      options, &drained, [&shell](int64_t grace_us) { shell.Drain(grace_us); },
      [&shell] { shell.Stop(); }, &*servers);
}

}  // namespace skein::services
