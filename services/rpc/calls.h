// Calls<Response>: unary gRPC calls that a core has not answered yet. Owned by the core's loop.
#pragma once

#include <cstdint>
#include <map>

#include "grpcpp/grpcpp.h"

namespace skein::services {

template <typename Response>
class Calls {
 public:
  struct Call {
    grpc::ServerUnaryReactor* reactor = nullptr;
    Response* response = nullptr;
  };

  void Add(uint64_t id, Call call) { calls_[id] = call; }

  // Finishes call `id`; `fill(Response*)` runs only when `status` is OK. Unknown ids are ignored.
  template <typename Fill>
  void Answer(uint64_t id, const grpc::Status& status, Fill fill) {
    const auto it = calls_.find(id);
    if (it == calls_.end()) return;
    if (status.ok()) fill(it->second.response);
    it->second.reactor->Finish(status);
    calls_.erase(it);
  }

  // Ends all calls, when the process stops.
  void AbortAll(const grpc::Status& status) {
    for (auto& [id, call] : calls_) call.reactor->Finish(status);
    calls_.clear();
  }

 private:
  std::map<uint64_t, Call> calls_;
};

}  // namespace skein::services
