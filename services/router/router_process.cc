#include "services/router/router_process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/log.h"
#include "services/base/metrics.h"
#include "services/base/process.h"
#include "services/base/process_metrics.h"
#include "services/base/signals.h"
#include "services/base/version.h"
#include "services/http/admin.h"
#include "services/http/error.h"
#include "services/http/server.h"
#include "services/router/api.h"
#include "services/router/edge.h"
#include "services/router/http_metrics.h"
#include "services/router/orchestrator_reports.h"

namespace skein::services {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

v1::RouterEnded::How HowOf(const EndOfRequest& ended) {
  switch (ended.end.reason) {
    case scheduler::FinishReason::kStop:
      return ended.end.stop_token >= 0 ? v1::RouterEnded::HOW_STOP_TOKEN
                                       : v1::RouterEnded::HOW_STOP_STRING;
    case scheduler::FinishReason::kLength:
      return v1::RouterEnded::HOW_MAX_TOKENS;
    default:
      return ended.client_gone ? v1::RouterEnded::HOW_CLIENT_GONE : v1::RouterEnded::HOW_FAILED;
  }
}

v1::RouterEnded EndedOf(const EndOfRequest& ended) {
  v1::RouterEnded out;
  out.mutable_id()->set_router(ended.end.id.router);
  out.mutable_id()->set_serial(ended.end.id.serial);
  out.set_how(HowOf(ended));
  if (out.how() == v1::RouterEnded::HOW_FAILED) {
    out.set_why(std::string(ended.end.status.message()));
  }
  out.set_output_tokens(static_cast<uint64_t>(ended.end.output_tokens));
  if (ended.first_token_us >= 0) {
    out.set_first_token_us(static_cast<uint64_t>(ended.first_token_us));
  }
  return out;
}

std::string HostName() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

RouterShellOptions ShellOptions(const RouterOptions& options,
                                const std::shared_ptr<EndedRequests>& ended) {
  RouterShellOptions out;
  out.on_end = [ended](const EndOfRequest& end) { ended->Add(EndedOf(end)); };
  out.core.max_streams = options.max_streams;
  out.core.max_queued = options.max_queued;
  out.core.request_deadline_us = static_cast<int64_t>(options.request_deadline_s * 1e6);
  out.orchestrator = options.orchestrator;
  out.incarnation = RandomIncarnation();
  return out;
}

http::ServerOptions HttpOptions(const RouterOptions& options) {
  http::ServerOptions out;
  out.host = options.host;
  out.port = static_cast<uint16_t>(options.port);
  out.threads = static_cast<int>(options.http_threads);
  out.header_bytes_max = static_cast<size_t>(options.max_header_bytes);
  out.body_bytes_max = static_cast<size_t>(options.max_body_bytes);
  out.connections_max = static_cast<size_t>(options.max_connections);
  out.buffer_bytes_max = static_cast<size_t>(options.stream_buffer_bytes);
  out.idle_timeout = Milliseconds(options.idle_timeout_s);
  out.read_timeout = Milliseconds(options.read_timeout_s);
  out.write_timeout = Milliseconds(options.write_timeout_s);
  return out;
}

// `trace` may be null.
RouterApiOptions ApiOptions(const RouterOptions& options, TraceRecorder* trace) {
  RouterApiOptions out;
  out.max_prompt_tokens = options.max_prompt_tokens;
  out.max_choices = options.max_choices;
  out.max_streams = options.max_streams;
  out.max_queued = options.max_queued;
  out.default_max_tokens = options.default_max_tokens;
  out.strict = options.strict_api;
  out.threads = static_cast<int>(options.tokenize_threads);
  out.queue_max = static_cast<size_t>(options.max_streams + options.max_queued);
  out.trace = trace;
  return out;
}

// A connection is a descriptor; the usual soft limit of 1024 would be the first to be reached.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
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
  LogInfo("recording a trace", {{"file", (*trace)->path()}});
  return trace;
}

// Everything with a thread, in the order in which it is built; destroyed in reverse.
class Router {
 public:
  // `trace` may be null.
  Router(const RouterOptions& options, Models models, std::unique_ptr<TraceRecorder> trace)
      : options_(options),
        models_(std::move(models)),
        trace_(std::move(trace)),
        router_metrics_(&metrics_),
        http_metrics_(&metrics_),
        process_metrics_("router", &metrics_),
        shell_(ShellOptions(options, ended_)),
        watch_(&shell_.channels(), options.orchestrator, Names(models_)),
        api_(ApiOptions(options, trace_.get()), &models_, &shell_, &watch_, &router_metrics_) {
    for (const auto& [name, model] : models_.all()) {
      router_metrics_.AddModel(name, model->max_positions);
    }
    shell_.Start();
    api_.AddRoutes(&routes_);
    AddPages(&routes_);
    AddPages(&admin_routes_);
    http::AddJsonPage(
        "/debug/invariants", [this] { return InvariantsJson(); }, &admin_routes_);
  }

  absl::Status Listen() {
    if (absl::Status status = ListenForClients(); !status.ok()) return status;
    http::ServerOptions admin;
    admin.host = options_.host;
    admin.port = static_cast<uint16_t>(options_.admin_port);
    admin.threads = 1;
    auto started = http::Server::Start(admin, [this](http::Request request, auto responder) {
      admin_routes_.Serve(std::move(request), std::move(responder));
    });
    if (!started.ok()) return AboutFlag("admin-port", started.status());
    admin_ = *std::move(started);
    absl::Status status = WritePortFile(options_.port_file, server_->port());
    if (status.ok()) status = WritePortFile(options_.admin_port_file, admin_->port());
    LogInfo("listening", {{"port", static_cast<int>(server_->port())},
                          {"admin_port", static_cast<int>(admin_->port())}});
    reports_.emplace(&shell_.channels(), options_.orchestrator, Self(), ended_);
    return status;
  }

  // SIGHUP: the keys as they are in the file now; a bad file changes nothing.
  void Reload() {
    if (absl::Status status = edge_->ReadKeys(); !status.ok()) {
      LogError("api keys are as before", {{"error", std::string(status.message())}});
    }
  }

  // Probes are served until the last answer has ended.
  void Drain() {
    api_.BeginDrain();
    const auto limit = std::chrono::steady_clock::now() + Milliseconds(options_.drain_grace_s);
    while (Running() > 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    LogInfo("drained", {{"cut_off", Running()}});
    shell_.TellStop();
    reports_.reset();
    server_->Stop(std::chrono::milliseconds(500));
    admin_->Stop(std::chrono::milliseconds(100));
  }

 private:
  absl::Status ListenForClients() {
    auto edge =
        Edge::Create({options_.allowed_origins, options_.api_key_file}, &routes_, &router_metrics_);
    if (!edge.ok()) return edge.status();
    edge_ = *std::move(edge);
    http::ServerOptions http_options = HttpOptions(options_);
    http_options.complete = [edge = edge_.get()](const http::Request& request,
                                                 http::Response* response) {
      edge->Complete(request, response);
    };
    auto started = http::Server::Start(http_options, [this](http::Request request, auto responder) {
      auto watched = http_metrics_.Watched(request, routes_.PatternOf(request.path), responder);
      edge_->Serve(std::move(request), std::move(watched));
    });
    if (!started.ok()) return AboutFlag("port", started.status());
    server_ = *std::move(started);
    return absl::OkStatus();
  }

  void AddPages(http::Routes* routes) {
    http::AddAdminPages({.service = "router",
                         .version = kVersion,
                         .ready = [this] { return Ready(); },
                         .metrics = [this] { return MetricsText(); }},
                        routes);
  }

  // What operators see of this router, and order it.
  OrchestratorReports::Self Self() {
    v1::RouterReport identity;
    identity.set_router(shell_.NextIds(0).router);
    identity.set_endpoint(absl::StrCat(options_.host, ":", server_->port()));
    identity.set_admin_endpoint(absl::StrCat(options_.host, ":", admin_->port()));
    identity.set_host(HostName());
    identity.set_pid(getpid());
    identity.set_version(kVersion);
    return {
        .identity = std::move(identity),
        .load =
            [this](v1::RouterReport* report) {
              shell_.Look([report](const scheduler::RouterSnapshot& snapshot) {
                report->set_queued(static_cast<uint64_t>(snapshot.queued));
                report->set_running(static_cast<uint64_t>(snapshot.submitted + snapshot.streaming));
              });
              report->set_draining(api_.draining());
            },
        .drain = [this](bool drain) { api_.OrderDrain(drain); }};
  }

  absl::Status Ready() const {
    return api_.draining() ? absl::UnavailableError("draining") : watch_.Ready();
  }

  std::string MetricsText() {
    const size_t connections = server_ == nullptr ? 0 : server_->stats().connections;
    shell_.Inspect([&](const scheduler::RouterSnapshot& snapshot, const absl::Status&) {
      router_metrics_.Refresh(snapshot, connections);
    });
    process_metrics_.Refresh();
    if (trace_ != nullptr) router_metrics_.RefreshTrace(trace_->written(), trace_->dropped());
    return metrics_.Render();
  }

  std::string InvariantsJson() {
    absl::Status status = absl::UnavailableError("stopping");
    shell_.Inspect(
        [&](const scheduler::RouterSnapshot&, const absl::Status& found) { status = found; });
    if (status.ok()) return "{\"ok\":true}";
    return absl::StrCat("{\"ok\":false,\"violated\":", http::JsonString(status.ToString()), "}");
  }

  int64_t Running() {
    int64_t running = 0;
    shell_.Inspect([&](const scheduler::RouterSnapshot& snapshot, const absl::Status&) {
      running = snapshot.queued + snapshot.submitted + snapshot.streaming;
    });
    return running;
  }

  const RouterOptions options_;
  const Models models_;
  const std::shared_ptr<EndedRequests> ended_ = std::make_shared<EndedRequests>();
  const std::unique_ptr<TraceRecorder> trace_;  // null: nothing is recorded
  Metrics metrics_;
  RouterMetrics router_metrics_;
  HttpMetrics http_metrics_;
  ProcessMetrics process_metrics_;
  RouterShell shell_;
  ModelWatch watch_;
  RouterApi api_;
  http::Routes routes_, admin_routes_;
  std::unique_ptr<Edge> edge_;
  std::unique_ptr<http::Server> server_, admin_;
  std::optional<OrchestratorReports> reports_;  // last: its thread uses the above
};

}  // namespace

absl::Status RunRouter(const RouterOptions& options) {
  BlockReloadSignal();
  RaiseDescriptorLimit();
  auto models = Models::Load(options.models);
  if (!models.ok()) return models.status();
  auto trace = OpenTrace(options);
  if (!trace.ok()) return trace.status();
  Router router(options, *std::move(models), *std::move(trace));
  if (absl::Status status = router.Listen(); !status.ok()) return status;
  while (AwaitStopOrReloadSignal() == SIGHUP) router.Reload();
  LogInfo("stopping");
  router.Drain();
  return absl::OkStatus();
}

}  // namespace skein::services
