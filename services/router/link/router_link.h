// RouterLink: a router's stream to the orchestrator, and the order to drain: an operator's that
// comes on the stream, or one that came to this router itself and that the orchestrator is told of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/router/router_core.h"
#include "services/orchestrator_link/drain_orders.h"
#include "services/orchestrator_link/orchestrator_stream.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"

namespace skein::services {

class RouterLink {
 public:
  // What this process adds to what the core says of the router.
  struct Self {
    v1::RouterIdentity identity;  // with an endpoint; its `router` is set by the shell
    std::function<bool()> draining = [] { return false; };  // called on the loop
    std::function<void(bool)> drain = [](bool) {};  // an operator's order; called on the loop
  };
  // An event of the stream; called on the loop.
  using Handle = std::function<void(scheduler::RouterEvent)>;

  // `loop` and `calls` outlive it. `calls` is to be cancelled and waited for before.
  RouterLink(uint64_t router, CallTracker* calls, Loop* loop,
             std::shared_ptr<grpc::Channel> orchestrator, Handle handle);

  // ---- on the loop ----
  void Join(Self self);
  void Open(scheduler::RouterHello hello);
  void Send(v1::RouterMessage message) { stream_.Send(std::move(message)); }
  void Report(scheduler::RouterLoad load);
  // No event of the stream follows.
  void Close() { stream_.Close(); }
  // The same, and nothing of Self is called any more.
  void Leave();

  // ---- any thread ----
  // As DrainOrders has them.
  absl::Status MayDrain() { return drain_orders_.MayDrain(); }
  void OrderDrain(bool drain) { drain_orders_.Order(drain); }

 private:
  absl::Status Take(const v1::OrchestratorRouterMessage& message);
  absl::Status TakeWelcome(const v1::RouterWelcome& message);
  void Ended(const absl::Status& why, bool welcomed);
  void FillIn(scheduler::RouterLoad* load) const;

  const uint64_t router_;
  const std::shared_ptr<grpc::Channel> channel_;
  const Handle handle_;
  const int64_t started_us_;
  Self self_;  // on the loop
  OrchestratorStream<v1::RouterMessage, v1::OrchestratorRouterMessage> stream_;
  DrainOrders drain_orders_;
};

}  // namespace skein::services
