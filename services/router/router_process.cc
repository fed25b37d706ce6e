#include "services/router/router_process.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/admin/admin_server.h"
#include "services/admin/model_wait.h"
#include "services/admin/start_signals.h"
#include "services/base/process.h"
#include "services/base/signals.h"
#include "services/log/log.h"
#include "services/router/access/audit_log.h"
#include "services/router/model/model.h"
#include "services/router/router_pages.h"
#include "services/router/running_router.h"
#include "services/router/trace_recorder.h"
#include "services/shell/loop.h"
#include "services/tracing/tracing.h"

namespace skein::services {
namespace {

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

// Waits for the models' folders, if the flags say so, and loads what a router needs of them. A stop
// signal ends the process.
absl::StatusOr<Models> LoadModels(const RouterOptions& options, RouterPages* pages) {
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
  RouterPages pages(options.console);
  if (absl::Status s = pages.OpenTenantAdmin(options.admin_key_file); !s.ok()) return s;
  const std::unique_ptr<Tracing> tracing =
      Tracing::Start(options.tracing, ThisProcess("router"), pages.metrics());
  pages.ShowTracesOf(tracing.get());
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
  RunningRouter router(options, *std::move(models), *std::move(trace), *std::move(audit),
                       tracing.get(), pages.metrics(), admin->get());
  if (absl::Status status = router.Listen(); !status.ok()) return status;
  pages.Attach(&router);
  while (AwaitStopOrReloadSignal() == SIGHUP) pages.Reload();
  LogInfo("stopping");
  router.Drain();
  pages.Detach();
  (*admin)->Stop(std::chrono::milliseconds(100));
  return absl::OkStatus();
}

}  // namespace skein::services
