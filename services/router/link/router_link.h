// RouterLink: a router's stream to the orchestrator of one cell; of several orchestrators, to the
// one that leads: what the core sees as one attempt to connect asks each of them once. Also passes
// drain orders on: those of an operator at the orchestrator to this router, and those given to this
// router itself to the orchestrator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/router/router_core.h"
#include "services/log/repeat_limit.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/orchestrator_link/drain_orders.h"
#include "services/orchestrator_link/orchestrator_stream.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"
#include "services/tracing/context.h"

namespace skein::services {

class RouterLink {
 public:
  // What this process adds to what the core says of the router.
  struct Self {
    v1::RouterIdentity identity;                            // with an endpoint
    std::function<bool()> draining = [] { return false; };  // called on the loop
    std::function<void(bool)> drain = [](bool) {};  // an operator's order; called on the loop
  };
  // An event of the stream; called on the loop.
  using Handle = std::function<void(scheduler::RouterEvent)>;
  struct Cell {
    size_t place = 0;           // in the router's list
    std::string orchestrators;  // as CellOrchestrators takes them
  };

  // `loop`, `calls` and `channels` outlive it. `calls` is to be cancelled and waited for before.
  RouterLink(uint64_t router, CallTracker* calls, Loop* loop, Channels* channels, const Cell& cell,
             Handle handle);

  // ---- on the loop ----
  // Before the first Open.
  void Introduce(Self self) { self_ = std::move(self); }
  void Open(scheduler::RouterHello hello);
  void Send(v1::RouterMessage message) { stream_.Send(std::move(message)); }
  void Report(scheduler::RouterLoad load);
  // The next report names this trace (RouterLoad.keep_traces). Of many, the latest count.
  void KeepTrace(const TraceId& trace);
  // No event of the stream follows.
  void Close() { stream_.Close(); }
  // The same, because the orchestrator does not answer: the next Open begins with another one.
  void CloseSilent();
  // The same, and nothing of Self is called any more.
  void Leave();

  // ---- any thread ----
  // As DrainOrders has them.
  absl::Status MayDrain() { return drain_orders_.MayDrain(); }
  void OrderDrain(bool drain) { drain_orders_.Order(drain); }

 private:
  void OpenStream();
  absl::Status Take(const v1::OrchestratorRouterMessage& message);
  absl::Status TakeWelcome(const v1::RouterWelcome& message);
  void Ended(const absl::Status& why, bool welcomed);
  void FillIn(scheduler::RouterLoad* load) const;

  Channels* const channels_;
  const size_t cell_;
  CellOrchestrators orchestrators_;
  const Handle handle_;
  const int64_t started_us_;
  Self self_;                            // on the loop
  RepeatLimit unreached_;                // likewise; by reason
  std::string asked_;                    // likewise; the orchestrator of the last stream
  std::deque<std::string> keep_traces_;  // likewise; for the next reports
  v1::RouterMessage hello_;              // likewise; of the present attempt, until it is answered
  OrchestratorStream<v1::RouterMessages, v1::OrchestratorRouterMessages> stream_;
  DrainOrders drain_orders_;
};

}  // namespace skein::services
