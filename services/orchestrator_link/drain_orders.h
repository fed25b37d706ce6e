// DrainOrders: an operator's order to drain that came to this worker or router itself, not to the
// orchestrator. The orchestrator is told of it, so that it gives nothing new to this process. Any
// thread.
#pragma once

#include <cstdint>
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
  // `calls` outlives it, and is cancelled and waited for before it is destroyed.
  DrainOrders(CallTracker* calls, std::shared_ptr<grpc::Channel> orchestrator);

  // As whom the orchestrator knows this process: a request with its `instance` or `router`. Until
  // then nothing is told, and MayDrain is OK.
  void Know(const v1::DrainRequest& self);

  // Whether the orchestrator lets this process drain; waits for at most a second. It does if it
  // cannot be asked. FAILED_PRECONDITION: no other serves in its place.
  absl::Status MayDrain();

  // From here on, to drain or to serve again. Told as soon as the orchestrator can be reached.
  void Order(bool drain);
  // Tries again what could not be told. For each sign that the orchestrator listens.
  void Tell();

  // The orchestrator sent this order, but the opposite one came here later and is not told yet.
  bool Contradicts(bool drain);

 private:
  void Told(const absl::Status& status, uint64_t order);

  CallTracker* const calls_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;  // guards all below
  std::optional<v1::DrainRequest> self_;
  std::optional<bool> order_;  // not told yet
  uint64_t orders_ = 0;        // counts them
  bool telling_ = false;
};

}  // namespace skein::services
