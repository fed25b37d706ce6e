#include "services/node/instance_view.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/admin/admin_access.h"
#include "services/http/error.h"
#include "services/log/log.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kAskEvery(500);
constexpr milliseconds kAskTimeout(500);
constexpr milliseconds kOrderTimeout(
    3000);  // an instance waits up to a second for the orchestrator

std::string Text(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t Number(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::string ErrorIn(const http::Response& response) {
  const Json json = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const auto error = json.is_object() ? json.find("error") : json.end();
  return error != json.end() && error->is_object() ? Text(*error, "message") : response.body;
}

}  // namespace

void InstanceView::Instance::Forget() {
  status_json.clear();
  state.clear();
  reason.clear();
  started = safe = false;
  in_flight = running = waiting = handoffs = held_blocks = 0;
}

InstanceView::InstanceView(const NodeOptions& options, std::vector<InstanceCommand> commands)
    : min_ready_(options.min_ready == 0 ? static_cast<int64_t>(commands.size())
                                        : options.min_ready),
      token_file_(options.admin.token_file) {
  for (InstanceCommand& command : commands) {
    instances_.emplace_back().command = std::move(command);
  }
}

InstanceView::~InstanceView() {
  {
    std::lock_guard lock(mutex_);
    stop_asking_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void InstanceView::StartAsking() {
  thread_ = std::thread([this] { Run(); });
}

void InstanceView::Set(size_t index, InstanceProcess process) {
  std::lock_guard lock(mutex_);
  Instance& instance = instances_[index];
  if (process.pid != instance.process.pid) instance.Forget();
  instance.process = std::move(process);
}

void InstanceView::Stopping() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
}

void InstanceView::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_asking_) {
    lock.unlock();
    for (size_t i = 0; i < instances_.size(); ++i) Ask(i);
    lock.lock();
    stop_.wait_for(lock, kAskEvery, [this] { return stop_asking_; });
  }
}

absl::StatusOr<http::Response> InstanceView::Call(size_t index, const char* method,
                                                  const std::string& target,
                                                  milliseconds timeout) const {
  const InstanceCommand& command = instances_[index].command;
  http::ClientRequest request{method, target, {}};
  if (!token_file_.empty()) {
    const auto token = ReadAdminToken(token_file_);
    if (token.ok()) request.headers.push_back({"Authorization", "Bearer " + *token});
  }
  return http::Ask({command.admin_host, command.admin_port}, request, timeout);
}

void InstanceView::Ask(size_t index) {
  pid_t pid = 0;
  {
    std::lock_guard lock(mutex_);
    pid = instances_[index].process.pid;
    if (pid == 0 || stop_asking_) return;
  }
  const auto response = Call(index, "GET", "/status", kAskTimeout);
  Take(index, pid, response.ok() && response->status == 200 ? response->body : "");
  bool tell = false;
  {
    // The instance was started after the order.
    std::lock_guard lock(mutex_);
    const Instance& instance = instances_[index];
    tell = ordered_drain_ == true &&
           (instance.ready() || instance.state == "waiting" || instance.state == "loading");
  }
  if (tell) Call(index, "POST", "/drain?force=1", kOrderTimeout).IgnoreError();
}

void InstanceView::Take(size_t index, pid_t pid, const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::lock_guard lock(mutex_);
  Instance& instance = instances_[index];
  if (instance.process.pid != pid) return;  // restarted meanwhile
  // Another process may have taken the port: accept only the instance's own answer.
  if (!json.is_object() || Number(json, "pid") != pid) return instance.Forget();
  instance.status_json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  instance.state = Text(json, "state");
  instance.reason = Text(json, "reason");
  instance.started = !Text(json, "endpoint").empty();
  instance.safe = json.value("safe_to_delete", Json()) == Json(true);
  instance.in_flight = Number(json, "in_flight");
  instance.running = Number(json, "running");
  instance.waiting = Number(json, "waiting");
  instance.handoffs = Number(json, "handoffs");
  instance.held_blocks = Number(json, "held_blocks");
}

std::string InstanceView::WhyNotReady(const Instance& instance, int64_t now_us) {
  if (instance.Gone()) {
    const double in_s = static_cast<double>(instance.process.next_start_us - now_us) * 1e-6;
    return absl::StrCat(
        instance.process.last_exit.empty() ? "is not running" : instance.process.last_exit,
        in_s > 0 ? absl::StrCat(", restarts in ", static_cast<int64_t>(in_s) + 1, " s") : "");
  }
  if (instance.status_json.empty()) return "its admin port does not answer";
  return instance.reason;
}

std::string InstanceView::JsonOf(size_t index, const Instance& instance, int64_t now_us) {
  nlohmann::ordered_json json;
  const InstanceProcess& process = instance.process;
  json["index"] = index;
  json["pid"] = process.pid;
  json["admin"] = absl::StrCat(instance.command.admin_host, ":", instance.command.admin_port);
  json["running"] = process.pid != 0;
  json["ready"] = instance.ready();
  json["reason"] = instance.ready() ? "" : WhyNotReady(instance, now_us);
  json["restarts"] = std::max<int64_t>(process.starts - 1, 0);
  json["last_exit"] = process.last_exit;
  json["last_words"] = process.last_words;
  const double in_s = static_cast<double>(process.next_start_us - now_us) * 1e-6;
  json["next_start_s"] = process.pid == 0 && process.next_start_us > 0
                             ? nlohmann::ordered_json(std::max(in_s, 0.0))
                             : nlohmann::ordered_json();
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  return absl::StrCat(
      text, ",\"status\":", instance.status_json.empty() ? "null" : instance.status_json, "}");
}

ProcessStatus InstanceView::Status() const {
  ProcessStatus status{.role = "node"};
  const int64_t now_us = MonotonicUs();
  std::lock_guard lock(mutex_);
  int64_t ready = 0, safe = 0, started = 0, running = 0;
  std::string first_why;
  for (size_t i = 0; i < instances_.size(); ++i) {
    const Instance& instance = instances_[i];
    ready += instance.ready();
    running += !instance.Gone();
    started += instance.started;
    safe += instance.safe || instance.Gone();
    status.in_flight += instance.in_flight;
    status.running += instance.running;
    status.waiting += instance.waiting;
    status.handoffs += instance.handoffs;
    status.held_blocks += instance.held_blocks;
    if (!instance.ready() && first_why.empty()) {
      first_why = absl::StrCat("; instance ", i, ": ", WhyNotReady(instance, now_us));
    }
    absl::StrAppend(&status.more, i == 0 ? "\"instances\":[" : ",", JsonOf(i, instance, now_us));
  }
  status.more += "]";
  const auto all = static_cast<int64_t>(instances_.size());
  // skein-node itself has started. It restarts failed instances; restarting skein-node would also
  // stop those that serve.
  status.started = true;
  status.safe_to_delete = safe == all && (stopping_ || ordered_drain_ == true || started == 0);
  status.reason = absl::StrCat(ready, " of ", all, " instances are ready", first_why);
  if (stopping_) {
    status.state = ProcessState::kStopping;
    status.reason = absl::StrCat("stopping: ", running, " of ", all, " instances still running");
  } else if (ordered_drain_ == true) {
    status.state = status.safe_to_delete ? ProcessState::kDrained : ProcessState::kDraining;
    status.reason =
        status.safe_to_delete ? "drained: safe to delete" : "draining: " + WhatIsLeft(status);
  } else if (ready >= min_ready_) {
    status.state = ProcessState::kServing;
    if (ready == all) status.reason.clear();
  }
  return status;
}

// If one instance refuses, the order is undone at the others.
absl::Status InstanceView::Order(const DrainOrder& order) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      return order.drain ? absl::OkStatus()
                         : absl::FailedPreconditionError("the process is stopping");
    }
  }
  const std::string target =
      !order.drain ? "/resume" : absl::StrCat("/drain", order.force ? "?force=1" : "");
  std::vector<size_t> obeyed;
  absl::Status refused;
  for (size_t i = 0; i < instances_.size() && refused.ok(); ++i) {
    bool did_before = false;
    {
      std::lock_guard lock(mutex_);
      if (instances_[i].Gone()) continue;
      did_before = instances_[i].state == "draining" || instances_[i].state == "drained";
    }
    const auto response = Call(i, "POST", target, kOrderTimeout);
    if (!response.ok()) continue;  // starting or stopping; it gets the order when it answers
    if (response->status >= 400) {
      refused =
          absl::FailedPreconditionError(absl::StrCat("instance ", i, ": ", ErrorIn(*response)));
    } else if (!did_before) {
      obeyed.push_back(i);
    }
  }
  if (!refused.ok()) {
    for (const size_t i : order.drain ? obeyed : std::vector<size_t>()) {
      Call(i, "POST", "/resume", kOrderTimeout).IgnoreError();
    }
    return refused;
  }
  {
    std::lock_guard lock(mutex_);
    ordered_drain_ = order.drain;
  }
  for (size_t i = 0; i < instances_.size(); ++i) Ask(i);
  return absl::OkStatus();
}

std::string InstanceView::MetricsText() {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < instances_.size(); ++i) {
    const Metrics::Labels labels = {{"instance_index", std::to_string(i)}};
    const Instance& instance = instances_[i];
    metrics_.Gauge("skein_node_instance_up", "1 while the instance's process runs.", labels)
        .Set(instance.Gone() ? 0 : 1);
    metrics_.Gauge("skein_node_instance_ready", "1 while the instance takes work.", labels)
        .Set(instance.ready() ? 1 : 0);
    metrics_.Total("skein_node_instance_restarts_total", "Starts of the instance after its first.",
                   labels, std::max<int64_t>(instance.process.starts - 1, 0));
  }
  process_.Refresh();
  return metrics_.Render();
}

http::Response InstanceView::ReadyPage(const http::Request& request) const {
  const std::string number = request.path.substr(std::string("/readyz/").size());
  size_t index = 0;
  const char* const end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, index);
  if (error != std::errc() || at != end || index >= instances_.size()) {
    return http::ErrorResponse(
        404,
        absl::StrCat("'", number, "' is not an instance; valid: 0 to ", instances_.size() - 1, "."),
        "instance", "unknown_instance");
  }
  std::lock_guard lock(mutex_);
  const Instance& instance = instances_[index];
  if (!instance.ready()) {
    return http::ErrorResponse(503, "Not ready: " + WhyNotReady(instance, MonotonicUs()), {},
                               "not_ready");
  }
  http::Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "ok\n";
  return response;
}

void InstanceView::AddPages(http::Routes* routes) {
  routes->AddPage("/readyz/*", [this](const http::Request& request) { return ReadyPage(request); });
}

}  // namespace skein::services
