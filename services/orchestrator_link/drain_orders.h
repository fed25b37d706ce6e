// DrainOrders: drain orders that an operator gave to this worker or router directly. It tells the
// orchestrator, so that this process gets nothing new. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "proto/orchestrator.pb.h"
#include "services/rpc/rpc.h"

namespace skein::services {

class DrainOrders {
 public:
  // The channel to the orchestrator that leads, as far as is known. Any thread.
  using Leader = std::function<std::shared_ptr<grpc::Channel>()>;

  // `calls` outlives this object, and is cancelled and waited for before it is destroyed.
  DrainOrders(CallTracker* calls, Leader leader);

  // Sets this process's identity at the orchestrator: a request with its `instance` or `router`.
  // Before this, nothing is sent, and MayDrain is OK.
  void Know(const v1::DrainRequest& self);

  // Whether the orchestrator lets this process drain; waits at most a second. OK if it cannot be
  // asked. FAILED_PRECONDITION: no other instance would serve.
  absl::Status MayDrain();

  // Drain from now on, or serve again. Sent as soon as the orchestrator can be reached.
  void Order(bool drain);
  // Sends again what could not be sent. Call whenever the orchestrator has answered.
  void Tell();

  // Whether this order of the orchestrator contradicts a later local order that was not sent yet.
  bool Contradicts(bool drain);

 private:
  void Told(const absl::Status& status, uint64_t order);

  CallTracker* const calls_;
  const Leader leader_;
  std::mutex mutex_;  // guards all below
  std::optional<v1::DrainRequest> self_;
  std::optional<bool> order_;  // not sent yet
  uint64_t orders_ = 0;        // counts them
  bool telling_ = false;
};

}  // namespace skein::services
