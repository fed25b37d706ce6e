#include "services/console/console.h"

#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/version.h"
#include "services/console/console_access.h"
#include "services/console/console_files.h"
#include "services/console/console_orders.h"
#include "services/console/console_view.h"
#include "services/http/error.h"
#include "services/log/log.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr size_t kTasksMax = 16;  // questions, and orders, that wait for their thread
constexpr milliseconds kQuestionTime{2'000};
constexpr milliseconds kSwitchTime{
    60'000};  // a switch goes on when the answer does not come by then
constexpr char kRoot[] = "/console";

Json SelfOf(const ConsoleOptions& options) {
  return {{"version", kVersion},
          {"models", options.models},
          {"router", options.router},
          {"orders", !options.token_file.empty()},
          {"needs_api_key", options.needs_api_key}};
}

std::vector<std::unique_ptr<LeaderCalls>> CallsOf(const std::vector<std::string>& cells,
                                                  Channels* channels) {
  std::vector<std::unique_ptr<LeaderCalls>> calls;
  calls.reserve(cells.size());
  for (const std::string& cell : cells) {
    calls.push_back(std::make_unique<LeaderCalls>(channels, cell));
  }
  return calls;
}

void Answer(http::Responder& responder, http::Response response) {
  AddConsoleHeaders(&response);
  responder.Send(std::move(response));
}

void Answer(http::Responder& responder, const Json& json) {
  http::Response response;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  Answer(responder, std::move(response));
}

void Refuse(http::Responder& responder, const absl::Status& status) {
  Answer(responder, http::ErrorResponse(HttpCode(status.code()),
                                        std::string(status.message()) + ".", {}, "refused"));
}

void Busy(http::Responder& responder) {
  http::Response response = http::ErrorResponse(503, "The console is busy; retry.", {}, "busy");
  response.headers.push_back({"Retry-After", "1"});
  Answer(responder, std::move(response));
}

http::Response FileResponse(const ConsoleFile& file) {
  http::Response response;
  response.content_type = std::string(file.content_type);
  response.body = std::string(file.content);
  AddConsoleHeaders(&response);
  return response;
}

absl::StatusOr<Json> Obey(LeaderCalls* calls, const ConsoleOrder& order) {
  Json done = {{"done", Json::array()}};
  if (const auto* drain = std::get_if<v1::DrainRequest>(&order.call)) {
    v1::DrainResponse response;
    absl::Status status =
        FromGrpc(calls->Call(&v1::Orchestrator::Stub::Drain, *drain, &response, kQuestionTime),
                 "orchestrator");
    if (!status.ok()) return status;
    done["done"].push_back(order.words);
    return done;
  }
  v1::ChangeFormationResponse response;
  absl::Status status = FromGrpc(
      calls->Call(&v1::Orchestrator::Stub::ChangeFormation,
                  std::get<v1::ChangeFormationRequest>(order.call), &response, kSwitchTime),
      "orchestrator");
  if (!status.ok()) return status;
  for (const std::string& one : response.done()) done["done"].push_back(one);
  return done;
}

}  // namespace

Console::Console(ConsoleOptions options, Channels* channels, http::RequestFn serve_api)
    : options_(std::move(options)),
      serve_api_(std::move(serve_api)),
      cells_(CallsOf(options_.cells, channels)),
      questions_(kTasksMax),
      orders_(kTasksMax),
      feed_(&cells_, &pages_, SelfOf(options_), options_.idle_period) {
  AddFiles();
  AddRoutes();
  const auto never = [] { return INT64_MAX; };
  questions_.Start("console", never, [] {});
  orders_.Start("orders", never, [] {});
}

Console::~Console() { Stop(); }

void Console::Stop() {
  for (const auto& calls : cells_) calls->Cancel();
  feed_.Stop();
  questions_.Stop();
  orders_.Stop();
  pages_.Close();
}

void Console::AddFiles() {
  for (const ConsoleFile& file : ConsoleFiles()) {
    const auto page = [&file](const http::Request&) { return FileResponse(file); };
    routes_.AddPage(absl::StrCat(kRoot, "/", std::string(file.name)), page);
    if (file.name == "index.html") routes_.AddPage(absl::StrCat(kRoot, "/"), page);
  }
}

void Console::AddRoutes() {
  // Relative, so that a proxy may serve it below a path of its own.
  routes_.AddPage(kRoot, [](const http::Request&) {
    http::Response response;
    response.status = 302;
    response.headers.push_back({"Location", "console/"});
    AddConsoleHeaders(&response);
    return response;
  });
  const auto add = [this](const char* method, const char* path, auto fn) {
    routes_.Add(method, absl::StrCat(kRoot, path),
                [this, fn](http::Request request, ResponderPtr responder) {
                  (this->*fn)(std::move(request), std::move(responder));
                });
  };
  add("GET", "/stream", &Console::Stream);
  add("GET", "/explain", &Console::Explain);
  add("POST", "/order", &Console::Order);
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    add("POST", path, &Console::Prompt);
  }
}

void Console::Serve(http::Request request, std::shared_ptr<http::Responder> responder) {
  if (auto refusal = RefuseConsole(request, options_.hosts); refusal.has_value()) {
    return Answer(*responder, *std::move(refusal));
  }
  routes_.Serve(std::move(request), std::move(responder));
}

void Console::Stream(const http::Request& request, const ResponderPtr& responder) {
  if (request.method == "HEAD") return Answer(*responder, http::Response{});
  if (!pages_.Open(responder)) return Busy(*responder);
  feed_.Wake();
}

void Console::Explain(const http::Request& request, const ResponderPtr& responder) {
  std::vector<std::pair<std::string, std::string>> fields;
  size_t first = 0;
  size_t end = cells_.size();
  v1::ExplainRequest ask;
  bool good = http::ParseQuery(request.query, &fields);
  for (const auto& [name, value] : fields) {
    if (name == "request") ask.set_request(value);
    if (name != "cell") continue;
    good = good && absl::SimpleAtoi(value, &first) && first < cells_.size();
    end = first + 1;
  }
  if (!good || ask.request().empty()) {
    return Refuse(*responder, absl::InvalidArgumentError("Give ?request=ID, and &cell=NUMBER"));
  }
  const bool taken = questions_.TryPost([this, first, end, ask, responder] {
    v1::ExplainResponse found;
    absl::Status status;
    for (size_t cell = first; cell < end; ++cell) {
      status =
          FromGrpc(cells_[cell]->Call(&v1::Orchestrator::Stub::Explain, ask, &found, kQuestionTime),
                   "orchestrator");
      if (status.ok()) break;
    }
    if (!status.ok()) return Refuse(*responder, status);
    const int64_t now_ms = ConsoleFeed::NowMs();
    Json answer = {{"requests", Json::array()}, {"now_ms", now_ms}};
    for (const auto& one : found.requests()) {
      answer["requests"].push_back(ExplanationView(one, now_ms));
    }
    Answer(*responder, answer);
  });
  if (!taken) Busy(*responder);
}

void Console::Order(const http::Request& request, const ResponderPtr& responder) {
  if (auto refusal = RefuseOrder(request, options_.token_file); refusal.has_value()) {
    LogWarning("refused", {{"path", request.path},
                           {"remote", request.remote},
                           {"request_id", request.id},
                           {"status", refusal->status}});
    return Answer(*responder, *std::move(refusal));
  }
  absl::StatusOr<ConsoleOrder> order = ParseConsoleOrder(request.body);
  if (order.ok() && order->cell >= cells_.size()) {
    order = absl::InvalidArgumentError("'cell': there is none of this number");
  }
  if (!order.ok()) return Refuse(*responder, order.status());
  LogInfo("ordered from the console",
          {{"order", order->words}, {"remote", request.remote}, {"request_id", request.id}});
  const bool taken = orders_.TryPost([this, responder, order = *std::move(order)] {
    const absl::StatusOr<Json> done = Obey(cells_[order.cell].get(), order);
    done.ok() ? Answer(*responder, *done) : Refuse(*responder, done.status());
  });
  if (!taken) Busy(*responder);
}

void Console::Prompt(http::Request request, const ResponderPtr& responder) {
  request.path = request.path.substr(sizeof kRoot - 1);
  serve_api_(std::move(request), responder);
}

void AddConsoleRoutes(const http::RequestFn& serve, http::Routes* routes) {
  const std::string root = kRoot;
  for (const std::string& path : {root, root + "/", root + "/*"}) routes->Add("GET", path, serve);
  routes->Add("POST", root + "/*", serve);
}

}  // namespace skein::services
