#include "services/admin/admin_server.h"

#include <atomic>
#include <list>
#include <mutex>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "services/admin/admin_access.h"
#include "services/admin/drain_arguments.h"
#include "services/base/process.h"
#include "services/base/version.h"
#include "services/http/admin.h"
#include "services/http/error.h"
#include "services/http/server.h"
#include "services/http/site_check.h"
#include "services/log/log.h"
#include "services/shell/loop.h"
#include "services/tls/security.h"

namespace skein::services {
namespace {

constexpr int64_t kLookUs = 1'000'000;  // how often the state is read, so that since_s is known
constexpr int64_t kLookWaitingUs = 100'000;  // the same, while a client waits for a drain
constexpr size_t kOrdersMax = 64;            // orders that wait for the thread below
constexpr size_t kWaitersMax = 64;

// Since when the process has been in its state. Thread-safe.
class StateClock {
 public:
  // Seconds since then.
  double See(ProcessState state) {
    std::lock_guard lock(mutex_);
    const int64_t now = MonotonicUs();
    if (state != state_) since_us_ = now;
    state_ = state;
    return static_cast<double>(now - since_us_) * 1e-6;
  }

 private:
  std::mutex mutex_;
  ProcessState state_ = ProcessState::kWaiting;
  int64_t since_us_ = MonotonicUs();
};

http::Response Invariants(const absl::Status& found) {
  const std::string message(found.message());
  if (absl::IsUnavailable(found)) {
    return http::ErrorResponse(503, "Not checked: " + message, {}, "not_checked");
  }
  http::Response response;
  response.body = R"({"ok":true})";
  if (!found.ok()) {
    response.body = absl::StrCat(R"({"ok":false,"violated":)", http::JsonString(message), "}");
  }
  return response;
}

}  // namespace

// The pages, and a thread for orders and for clients that wait for the end of a drain.
class AdminServer::Pages {
 public:
  Pages(const AdminOptions& options, AdminHooks hooks)
      : hooks_(std::move(hooks)), token_file_(options.token_file), loop_(kOrdersMax) {
    http::AddAdminPages({.service = hooks_.service,
                         .version = kVersion,
                         .ready = [this] { return Ready(); },
                         .live = hooks_.live,
                         .metrics = hooks_.metrics,
                         .metrics_page = hooks_.metrics_page},
                        &routes_);
    routes_.AddPage("/startupz", [this](const http::Request&) { return Startup(); });
    http::AddJsonPage(
        "/status", [this] { return Json(Look()); }, &routes_);
    if (hooks_.invariants) {
      routes_.AddPage("/debug/invariants",
                      [this](const http::Request&) { return Invariants(hooks_.invariants()); });
    }
    for (const bool drain : {true, false}) {
      routes_.Add("POST", drain ? "/drain" : "/resume",
                  [this, drain](const http::Request& request, ResponderPtr responder) {
                    Take(drain, request, std::move(responder));
                  });
    }
    if (hooks_.more) hooks_.more(&routes_);
    http::AddJsonPage(
        "/", [this] { return Endpoints(); }, &routes_);
  }
  ~Pages() { Stop(std::chrono::milliseconds(0)); }

  absl::Status Listen(const AdminOptions& options, const std::string& service_host) {
    loop_.Start(
        "admin", [this] { return next_look_us_; }, [this] { Tick(); });
    const std::string host = options.host.empty() ? service_host : options.host;
    if (http::IsLoopbackHost(host)) sites_ = http::SiteCheck(hooks_.hosts, "");
    const tls::Security& security = tls::ProcessSecurity();
    auto started = http::Server::Start({.host = host,
                                        .port = static_cast<uint16_t>(options.port),
                                        .threads = 1,
                                        .certificates = security.certificates,
                                        .need_certificate = security.mutual == tls::Mutual::kAll},
                                       [this](http::Request request, ResponderPtr responder) {
                                         auto foreign = sites_.RefuseHost(request);
                                         if (foreign) return responder->Send(*std::move(foreign));
                                         routes_.Serve(std::move(request), std::move(responder));
                                       });
    if (!started.ok()) return AboutListening("admin-port", started.status());
    server_ = *std::move(started);
    return WritePortFile(options.port_file, server_->port());
  }

  uint16_t port() const { return server_->port(); }

  void Stop(std::chrono::milliseconds grace) {
    loop_.RunAndWait([this] { AnswerWaiters(/*all=*/true); });
    loop_.Stop();
    if (server_ != nullptr) server_->Stop(grace);
  }

 private:
  using ResponderPtr = std::shared_ptr<http::Responder>;

  // A client that waits until the process may be stopped safely.
  struct Waiter {
    ResponderPtr responder;
    int64_t until_us = 0;
    std::shared_ptr<std::atomic<bool>> gone;
  };

  ProcessStatus Look() {
    ProcessStatus status = hooks_.status();
    clock_.See(status.state);
    return status;
  }

  std::string Json(const ProcessStatus& status) {
    return JsonOf(status, clock_.See(status.state),
                  static_cast<double>(MonotonicUs() - started_us_) * 1e-6);
  }

  std::string Endpoints() const {
    std::string list;
    for (const auto& [method, path] : routes_.All()) {
      absl::StrAppend(&list, list.empty() ? "" : ",", http::JsonString(method + " " + path));
    }
    return absl::StrCat("{\"endpoints\":[", list, "]}\n");
  }

  absl::Status Ready() {
    const ProcessStatus status = Look();
    // A standby does its work, too: a rolling update waits for it, and may then end the leader.
    if (status.state == ProcessState::kServing || status.state == ProcessState::kStandby) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(status.reason);
  }

  http::Response Startup() {
    const ProcessStatus status = Look();
    if (!status.started) {
      return http::ErrorResponse(503, "Not started: " + status.reason, {}, "not_started");
    }
    http::Response response;
    response.content_type = "text/plain; charset=utf-8";
    response.body = "ok\n";
    return response;
  }

  void Take(bool drain, const http::Request& request, ResponderPtr responder) {
    if (auto refusal = RefuseAdmin(request, token_file_); refusal.has_value()) {
      LogWarning("refused", {{"path", request.path},
                             {"remote", request.remote},
                             {"request_id", request.id},
                             {"status", refusal->status}});
      return responder->Send(*std::move(refusal));
    }
    if (!drain && !request.query.empty()) {
      return responder->Send(http::ErrorResponse(
          400, absl::StrCat("'", request.query, "': /resume takes no arguments."),
          request.query.substr(0, request.query.find('=')), "unknown_argument"));
    }
    auto arguments = ParseDrainArguments(request.query);
    if (const auto* bad = std::get_if<BadArgument>(&arguments)) {
      return responder->Send(http::ErrorResponse(400, bad->what + ".", bad->name, "bad_argument"));
    }
    LogInfo(drain ? "drain ordered" : "drain undone", {{"remote", request.remote}});
    const bool taken =
        loop_.TryPost([this, drain, responder, arguments = std::get<DrainArguments>(arguments)] {
          Obey(drain, arguments, responder);
        });
    if (!taken) Busy(*responder);
  }

  static void Busy(http::Responder& responder) {
    http::Response response = http::ErrorResponse(
        503, "Too many drain and resume requests at a time; retry.", {}, "busy");
    response.headers.push_back({"Retry-After", "1"});
    responder.Send(std::move(response));
  }

  // On the loop.
  void Obey(bool drain, const DrainArguments& arguments, const ResponderPtr& responder) {
    const absl::Status obeyed = hooks_.order({drain, arguments.force});
    if (!obeyed.ok()) {
      const std::string why(obeyed.message());
      return responder->Send(http::ErrorResponse(
          409, drain ? why + "; force=1 drains it anyway." : why + ".", {}, "refused"));
    }
    const ProcessStatus status = Look();
    if (!drain || status.safe_to_delete || arguments.wait_s == 0) {
      return Answer(drain, status, *responder);
    }
    if (waiters_.size() >= kWaitersMax) return Busy(*responder);
    auto gone = std::make_shared<std::atomic<bool>>(false);
    responder->Watch([gone](http::Gone) { gone->store(true); }, nullptr);
    waiters_.push_back(
        {responder, MonotonicUs() + static_cast<int64_t>(arguments.wait_s * 1e6), gone});
    next_look_us_ = MonotonicUs() + kLookWaitingUs;
  }

  void Answer(bool drain, const ProcessStatus& status, http::Responder& responder) {
    http::Response response;
    response.status = !drain || status.safe_to_delete ? 200 : 202;
    response.body = Json(status);
    responder.Send(std::move(response));
  }

  void Tick() {
    if (waiters_.empty()) {
      Look();
    } else {
      AnswerWaiters(/*all=*/false);
    }
    next_look_us_ = MonotonicUs() + (waiters_.empty() ? kLookUs : kLookWaitingUs);
  }

  void AnswerWaiters(bool all) {
    if (waiters_.empty()) return;
    const ProcessStatus status = Look();
    const int64_t now = MonotonicUs();
    waiters_.remove_if([&](const Waiter& waiter) {
      const bool over = all || status.safe_to_delete || now >= waiter.until_us;
      if (over) Answer(/*drain=*/true, status, *waiter.responder);
      return over || waiter.gone->load();
    });
  }

  const AdminHooks hooks_;
  const std::string token_file_;
  const int64_t started_us_ = MonotonicUs();
  StateClock clock_;
  http::Routes routes_;
  http::SiteCheck sites_;
  // Used only on the loop:
  std::list<Waiter> waiters_;
  int64_t next_look_us_ = 0;
  // The loop is last, because its thread uses everything above.
  Loop loop_;
  std::unique_ptr<http::Server> server_;
};

void AdminOptions::Register(FlagSet* flags) {
  FlagSet::Detail address =
      flags
          ->String(&host, "admin-host",
                   "Address of the admin port; use 0.0.0.0 where probes and Prometheus "
                   "come from other hosts.")
          .Value("ADDRESS");
  if (host.empty()) address.Default("--host");
  flags->Int(&port, "admin-port",
             "HTTP port for probes, status, drain, metrics and debug pages; 0 takes a free one.", 0,
             65535);
  flags->String(&port_file, "admin-port-file",
                "The admin port is written to this file once it is open.");
  flags
      ->String(&token_file, "admin-token-file",
               "File with the token that lets other hosts drain and resume this process; without "
               "it only this host may. Read at each use.")
      .Value("FILE");
  flags->Check([this] {
    if (token_file.empty()) return absl::OkStatus();
    return AboutFlag("admin-token-file", ReadAdminToken(token_file).status());
  });
}

AdminServer::AdminServer(std::unique_ptr<Pages> pages) : pages_(std::move(pages)) {}
AdminServer::~AdminServer() = default;

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const AdminOptions& options,
                                                                const std::string& service_host,
                                                                AdminHooks hooks) {
  auto pages = std::make_unique<Pages>(options, std::move(hooks));
  if (absl::Status status = pages->Listen(options, service_host); !status.ok()) return status;
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(pages)));
}

uint16_t AdminServer::port() const { return pages_->port(); }

void AdminServer::Stop(std::chrono::milliseconds grace) { pages_->Stop(grace); }

}  // namespace skein::services
