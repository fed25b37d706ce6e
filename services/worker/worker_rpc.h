// OrchestratorLink: what both worker shells do with the orchestrator. It opens the stream, numbers
// what the core says on it, turns what comes into the core's events, and tells the orchestrator of
// an operator's order that came to the worker itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/orchestrator.pb.h"
#include "scheduler/worker/membership_events.h"
#include "services/base/bidi_stream.h"
#include "services/base/message_counters.h"

namespace grpc {
class Channel;
}

namespace skein::services {

class CallTracker;
class Loop;

class OrchestratorLink {
 public:
  // All run on the loop, with what came on the stream that stands.
  struct Events {
    std::function<void(scheduler::RegisterReplied)> registered;
    std::function<void(scheduler::ReportReplied)> reported;
    std::function<void(scheduler::UnregisterReplied)> unregistered;
    std::function<void(scheduler::Disconnected)> disconnected;
    std::function<void(scheduler::CancelCalled)> cancelled;
    std::function<void(scheduler::OrderDrain)> ordered;
    // The messages of the worker's own role. Not OK: it is malformed, and the stream is closed.
    std::function<absl::Status(const v1::OrchestratorMessage&)> other;
  };

  // `calls` and `loop` outlive this; `channel` leads to the orchestrator.
  OrchestratorLink(CallTracker* calls, Loop* loop, std::shared_ptr<grpc::Channel> channel)
      : calls_(calls), loop_(loop), channel_(std::move(channel)) {}

  // Before the first Open.
  void Start(Events events) { events_ = std::move(events); }
  // `refused` is called with why, on a gRPC thread, when the orchestrator has answered nothing but
  // FAILED_PRECONDITION to registrations for more than two leases of instances: this worker does
  // not go with the others of its model, and these live. Instances that died count until their
  // lease ends. May be called again. Before the first Register.
  void OnRefused(std::function<void(const absl::Status&)> refused) {
    refused_ = std::move(refused);
  }

  // On the loop. Open closes the stream before.
  void Open(const scheduler::CallRegister& call, bool invariants_ok);
  void Report(const scheduler::CallReport& call, bool invariants_ok);
  void Unregister(const scheduler::CallUnregister& call);
  void Send(v1::WorkerMessage message);
  // On the loop, or when it has ended. No event of the stream follows.
  void Close();

  // Whether the orchestrator lets this worker drain; waits for at most a second. It does if it
  // cannot be asked. FAILED_PRECONDITION: no other serves in its place.
  absl::Status MayDrain();
  // Tells the orchestrator, as soon as it can be reached, to order the same; until then what it
  // orders does not count. Any thread.
  void OrderDrain(bool drain);

 private:
  using Stream = ClientStream<v1::WorkerMessage, v1::OrchestratorMessage>;

  void Take(uint64_t stream, const v1::OrchestratorMessage& message);
  absl::Status Take(const v1::OrchestratorMessage& message);
  void Ended(uint64_t stream, const absl::Status& status);
  void Drop(const absl::Status& status);  // the core does not know yet
  void CountRefusal(const absl::Status& status);
  void Tell();
  void Told(const absl::Status& status, uint64_t order);
  bool HasUntoldOrder();

  CallTracker* const calls_;
  Loop* const loop_;
  const std::shared_ptr<grpc::Channel> channel_;
  Events events_;
  std::function<void(const absl::Status&)> refused_;
  // On the loop.
  std::shared_ptr<Stream> stream_;  // null: none stands
  uint64_t streams_ = 0;            // that were opened; what comes of an older one is dropped
  MessageCounters counters_;
  bool welcome_ = false;
  uint64_t last_serial_ = 0;                 // of reports
  std::mutex mutex_;                         // guards all below
  scheduler::InstanceId instance_;           // 0: not registered yet
  std::optional<int64_t> refused_since_us_;  // MonotonicUs() of the first of the present refusals
  std::optional<bool> order_;                // untold
  uint64_t orders_ = 0;                      // counts them
  bool telling_ = false;
};

}  // namespace skein::services
