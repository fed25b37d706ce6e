// The life of a worker process of either role. Internal to services/worker.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/admin/model_wait.h"
#include "services/admin/slot.h"
#include "services/admin/start_signals.h"
#include "services/metrics/process_metrics.h"
#include "services/shell/loop.h"
#include "services/tracing/trace_page.h"
#include "services/tracing/tracing.h"
#include "services/worker/process/worker_common.h"
#include "services/worker/process/worker_end.h"
#include "services/worker/process/worker_status.h"

namespace skein::services {

// What the admin pages need, also while there is no shell yet; all but the metrics' refreshing is
// the same in both roles. Outlives the admin server.
template <typename Shell>
struct WorkerPages {
  WorkerPages(const WorkerOptions& options, const std::string& role)
      : orchestrator(options.orchestrator),
        start(role, ServedName(options)),
        process(role, &metrics) {}

  const std::string orchestrator;
  WorkerStart start;
  Metrics metrics;
  ProcessMetrics process;
  Slot<Shell> shell;           // PrefillShell or DecodeShell, while it runs
  Tracing* tracing = nullptr;  // set before the admin server starts; null: tracing is off
  WorkerEnd end;

  ProcessStatus Status() {
    ProcessStatus status = start.Status();
    shell.With([&](Shell& running) {
      const auto copy = running.Look();
      if (copy.has_value()) FillStatus(copy->snapshot, orchestrator, &status);
    });
    return status;
  }

  absl::Status Invariants() {
    absl::Status found = absl::UnavailableError("starting or stopping");
    shell.With([&found](Shell& running) { found = running.CheckInvariants(); });
    return found;
  }

  absl::Status Order(const DrainOrder& order) {
    absl::Status obeyed;
    const bool runs = shell.With([&](Shell& running) {
      bool stopping = false;
      running.Inspect(
          [&stopping](const auto& snapshot, const absl::Status&) { stopping = snapshot.stopping; });
      if (stopping) {
        if (!order.drain) obeyed = absl::FailedPreconditionError("the process is stopping");
        return;
      }
      if (order.drain && !order.force) obeyed = running.MayDrain();
      if (!obeyed.ok()) return;
      running.OrderDrain(order.drain);
      running.Inspect([](const auto&, const absl::Status&) {});  // Status shows it from here on
    });
    if (runs) return obeyed;
    start.Order(order.drain);
    shell.With([&](Shell& running) { running.OrderDrain(order.drain); });  // it has begun meanwhile
    return obeyed;
  }
};

template <typename Shell, typename Refresh>
AdminHooks HooksOf(const std::string& role, const std::string& model, WorkerPages<Shell>* pages,
                   Refresh refresh) {
  return {
      .service = role,
      .status = [pages] { return pages->Status(); },
      .live =
          [pages] {
            const absl::Status engine = pages->end.engine();
            if (engine.ok()) return engine;
            return absl::UnavailableError(absl::StrCat("the engine failed: ", engine.message()));
          },
      .order = [pages](const DrainOrder& order) { return pages->Order(order); },
      .metrics =
          [pages, model, refresh] {
            pages->shell.With([&](Shell& running) { refresh(&running, model, &pages->metrics); });
            RefreshDataConnections(&pages->metrics);
            if (pages->tracing != nullptr) pages->tracing->RefreshMetrics();
            pages->process.Refresh();
            return pages->metrics.Render();
          },
      .invariants = [pages] { return pages->Invariants(); },
      .more = nullptr};
}

// Waits for the model's folder, if the flags say so, and loads it. A stop signal ends the process.
absl::StatusOr<WorkerEngine> LoadWorkerEngine(const WorkerOptions& options, scheduler::Role role,
                                              WorkerStart* start);

// Opens the admin port, loads the engine, listens, runs the core until a stop signal, drains.
// `config_of` makes the core's config from engine and bound ports. `observe(model, metrics, shell)`
// makes the metrics that the shell observes while it runs; `refresh` brings the others up to date.
// `add_pages(routes, pages)` adds the role's own admin pages.
template <typename Shell, typename Service, typename ConfigOf, typename Observe, typename Refresh,
          typename AddPages>
absl::Status RunWorker(const WorkerOptions& options, scheduler::Role role, ConfigOf config_of,
                       Observe observe, Refresh refresh, AddPages add_pages) {
  const std::string name = role == scheduler::Role::kPrefill ? "prefill-worker" : "decode-worker";
  const std::string model = ServedName(options);
  WorkerPages<Shell> pages(options, name);
  const std::unique_ptr<Tracing> tracing =
      Tracing::Start(options.tracing, ThisProcess(name), &pages.metrics);
  pages.tracing = tracing.get();
  AdminHooks hooks = HooksOf(name, model, &pages, refresh);
  hooks.more = [&pages, add_pages](http::Routes* routes) {
    add_pages(routes, &pages);
    AddTracePage([&pages] { return pages.tracing != nullptr ? pages.tracing->recent() : nullptr; },
                 routes);
  };
  auto admin = AdminServer::Start(options.admin, options.host, std::move(hooks));
  if (!admin.ok()) return admin.status();
  absl::StatusOr<WorkerEngine> engine = LoadWorkerEngine(options, role, &pages.start);
  if (!engine.ok()) return engine.status();
  LogEngine(engine->engine->Spec(), model);
  Shell shell(&*engine, options.orchestrator, kInboxMax);
  Service service(&shell);
  absl::StatusOr<WorkerServers> servers =
      ListenAsWorker(options, &service, Service::kMessageBytesMax, admin->get());
  if (!servers.ok()) return servers.status();
  pages.start.Listen(EndpointOf(options, *servers));
  shell.ObserveSteps(&StepTokens(engine->engine->Spec(), model, &pages.metrics));
  observe(model, &pages.metrics, &shell);
  if (tracing != nullptr) shell.Trace(tracing->tracer());
  WorkerEnd& end = pages.end;
  shell.OnRefused([&end](const absl::Status& status) { end.Refused(status); });
  shell.Start(
      config_of(options, *engine, *servers), [&end] { end.Drained(); },
      [&end](const scheduler::EngineFailed& failed) {
        end.EngineFailed(failed.status, static_cast<double>(failed.leaves_within_us) / 1e6);
      });
  pages.shell.Put(&shell);
  if (pages.start.drain_ordered()) shell.OrderDrain(true);
  const absl::Status status = ServeUntilDrained(
      options, &end, [&shell](int64_t grace_us) { shell.Drain(grace_us); },
      [&shell] { shell.Stop(); }, &*servers);
  pages.shell.Take();
  return status;
}

}  // namespace skein::services
