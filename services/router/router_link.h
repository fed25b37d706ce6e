// RouterLink: a router's stream to the orchestrator, and the order to drain: an operator's that
// comes on the stream, or one that came to this router itself and that the orchestrator is told of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/router/router_core.h"
#include "services/base/bidi_stream.h"
#include "services/base/loop.h"
#include "services/base/message_counters.h"
#include "services/base/rpc.h"

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
  void Send(v1::RouterMessage message);  // dropped where there is no stream
  void Report(scheduler::RouterLoad load);
  // No event of the stream follows.
  void Close();
  // The same, and nothing of Self is called any more.
  void Leave();

  // ---- any thread ----
  // Whether the orchestrator lets this router drain; waits for at most a second. It does if it
  // cannot be asked. FAILED_PRECONDITION: no other serves in its place.
  absl::Status MayDrain();
  // Tells the orchestrator, as soon as it can be reached, to order the same; until then what it
  // orders does not count.
  void OrderDrain(bool drain);

 private:
  using Stream = ClientStream<v1::RouterMessage, v1::OrchestratorRouterMessage>;

  void Take(uint64_t stream, const v1::OrchestratorRouterMessage& message);
  absl::Status Take(const v1::OrchestratorRouterMessage& message);
  absl::Status TakeWelcome(const v1::RouterWelcome& message);
  void Ended(uint64_t stream, const absl::Status& status);
  void Drop(const absl::Status& status);
  void Obey(bool drain);
  void Tell();
  void Told(const absl::Status& status, uint64_t order);
  void FillIn(scheduler::RouterLoad* load) const;

  const uint64_t router_;
  CallTracker* const calls_;
  Loop* const loop_;
  const std::shared_ptr<grpc::Channel> channel_;
  const Handle handle_;
  const int64_t started_us_;
  // On the loop.
  Self self_;
  std::shared_ptr<Stream> stream_;  // null: none stands
  uint64_t streams_ = 0;            // that were opened; what comes of an older one is dropped
  MessageCounters counters_;
  bool welcome_ = false;
  std::mutex mutex_;           // guards all below
  std::optional<bool> order_;  // untold
  uint64_t orders_ = 0;        // counts them
  bool telling_ = false;
};

}  // namespace skein::services
