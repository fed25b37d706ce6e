// WorkerLink: what both worker shells do with the orchestrator. It opens the stream, numbers
// what the core says on it, turns what comes into the core's events, and tells the orchestrator of
// an operator's order that came to the worker itself. In a cell with several orchestrators it looks
// for the one that leads: what the core sees as one attempt to register asks each of them once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/worker/membership/membership_events.h"
#include "services/log/repeat_limit.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/orchestrator_link/drain_orders.h"
#include "services/orchestrator_link/orchestrator_stream.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"

namespace skein::services {

// What the shell adds to the load that its core reports (scheduler::WorkerLoad).
struct ShellLoad {
  bool invariants_ok = true;
  uint64_t groups_made = 0;
  uint64_t groups_failed = 0;
};

class WorkerLink {
 public:
  // All run on the loop, with what came on the stream that stands.
  struct Events {
    std::function<void(scheduler::RegisterReplied)> registered;
    std::function<void(scheduler::ReportReplied)> reported;
    std::function<void(scheduler::UnregisterReplied)> unregistered;
    std::function<void(scheduler::Disconnected)> disconnected;
    std::function<void(scheduler::CancelCalled)> cancelled;
    std::function<void(scheduler::OrderDrain)> ordered;
    // Another instance of the pool is reached there.
    std::function<void(const std::string& comm_address)> peer;
    // The trace of a slow request, 16 bytes: its spans are to be exported.
    std::function<void(const std::string& trace)> keep_trace;
    // The messages of the worker's own role. Not OK: it is malformed, and the stream is closed.
    std::function<absl::Status(const v1::OrchestratorMessage&)> other;
  };

  // `calls`, `loop` and `channels` outlive this. `cell`: its orchestrators, as CellOrchestrators
  // takes them.
  WorkerLink(CallTracker* calls, Loop* loop, Channels* channels, const std::string& cell);

  // Before the first Open.
  void Start(Events events) { events_ = std::move(events); }
  // Calls `refused` with the reason, on a gRPC thread, when registrations were answered only with
  // FAILED_PRECONDITION for more than two instance leases: this worker is incompatible with live
  // workers of its model. (Dead instances count until their lease expires.) May be called more than
  // once. Before the first Register.
  void OnRefused(std::function<void(const absl::Status&)> refused) {
    refused_ = std::move(refused);
  }

  // On the loop. Open closes the stream before.
  void Open(const scheduler::CallRegister& call, const ShellLoad& load);
  void Report(const scheduler::CallReport& call, const ShellLoad& load);
  void Unregister(const scheduler::CallUnregister& call);
  void Send(v1::WorkerMessage message) { stream_.Send(std::move(message)); }
  // On the loop, or when it has ended. No event of the stream follows.
  void Close() { stream_.Close(); }
  // The same, because the orchestrator does not answer: the next Open begins with another one.
  void CloseSilent();

  // Any thread. As DrainOrders has them.
  absl::Status MayDrain() { return drain_orders_.MayDrain(); }
  void OrderDrain(bool drain) { drain_orders_.Order(drain); }

 private:
  std::shared_ptr<grpc::Channel> Leader() {
    return channels_->Get(orchestrators_.Current(), {tls::Role::kOrchestrator});
  }
  void OpenStream();
  absl::Status Take(const v1::OrchestratorMessage& message);
  absl::Status TakeWelcome(const v1::RegisterResponse& message);
  void Ended(const absl::Status& why, bool welcomed);
  void CountRefusal(const absl::Status& status);

  CallTracker* const calls_;
  Channels* const channels_;
  CellOrchestrators orchestrators_;
  Events events_;
  std::function<void(const absl::Status&)> refused_;
  // On the loop.
  std::string asked_;        // the orchestrator of the last stream
  v1::WorkerMessage hello_;  // of the present attempt, until it is answered
  OrchestratorStream<v1::WorkerMessages, v1::OrchestratorMessages> stream_;
  uint64_t last_serial_ = 0;                 // of reports
  std::optional<int64_t> refused_since_us_;  // MonotonicUs() of the first of the present refusals
  RepeatLimit unregistered_;                 // by reason
  DrainOrders drain_orders_;
};

}  // namespace skein::services
