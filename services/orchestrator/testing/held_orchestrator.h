// An orchestrator over gRPC that takes streams, but handles nothing that comes on them until it is
// released. For tests of what its peers send before it welcomes them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/orchestrator/orchestrator_shell.h"
#include "services/rpc/rpc.h"

namespace skein::services::testing {

// Until the snapshot is so; false: it is not within a minute.
inline bool Await(OrchestratorShell* shell,
                  const std::function<bool(const scheduler::OrchestratorSnapshot&)>& so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (so(shell->Look()->snapshot)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class HeldOrchestrator final : public v1::Orchestrator::CallbackService {
 public:
  // `port`: 0 takes any.
  HeldOrchestrator(int port, const scheduler::OrchestratorConfig& config) : shell_(config, 64) {
    shell_.Start();
    const auto hold = [this](const OrchestratorShell::Copy&) { release_.get_future().wait(); };
    SKEIN_CHECK(shell_.LookLater(hold));
    auto server = ServeRpc(absl::StrCat("127.0.0.1:", port), {this});
    SKEIN_CHECK_MSG(server.ok(), server.status().ToString().c_str());
    server_ = *std::move(server);
  }
  ~HeldOrchestrator() override {
    Release();
    shell_.Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  // From here on it handles what has come and comes.
  void Release() {
    if (!std::exchange(released_, true)) release_.set_value();
  }
  int port() const { return server_.port; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port()); }
  OrchestratorShell& shell() { return shell_; }
  // Of workers and routers, opened so far.
  int streams() const { return streams_.load(); }
  void AwaitStream() const { streams_.wait(0); }

  grpc::ServerBidiReactor<v1::RouterMessages, v1::OrchestratorRouterMessages>* ConnectRouter(
      grpc::CallbackServerContext* context) override {
    Count();
    return shell_.ConnectRouter(context);
  }
  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    Count();
    return shell_.ConnectWorker(context);
  }

 private:
  void Count() {
    streams_.fetch_add(1);
    streams_.notify_all();
  }

  std::promise<void> release_;
  bool released_ = false;
  std::atomic<int> streams_{0};
  OrchestratorShell shell_;
  RpcServer server_;
};

}  // namespace skein::services::testing
