// gRPC servers and channels as every Skein service makes them: health and reflection on, sizes
// bounded, a deadline on every unary call, keepalive so that a dead peer is noticed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "services/base/status_map.h"

namespace skein::services {

inline constexpr int kMaxMessageBytes = 64 << 20;

struct RpcServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // the bound one, when 0 was asked for
};

// Serves `services` (not owned; they outlive the server) on address "host:port". UNAVAILABLE names
// an address that is taken.
absl::StatusOr<RpcServer> ServeRpc(const std::string& address,
                                   const std::vector<grpc::Service*>& services);

// One channel an endpoint, made on first use. Thread-safe.
class Channels {
 public:
  std::shared_ptr<grpc::Channel> Get(const std::string& endpoint);
  // Forgets a dead endpoint's channel; calls in flight keep theirs.
  void Forget(const std::string& endpoint);

 private:
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

// Calls a unary method; `done` runs exactly once on a gRPC thread.
//   Call(stub.async(), &v1::PrefillWorker::Stub::async::Assign…) is spelt with a lambda at the call
//   site: CallUnary<v1::AssignResponse>(request, deadline_us, [&](auto* c, auto* q, auto* r, auto
//   f) {
//     stub->async()->Assign(c, q, r, std::move(f)); }, done);
template <typename Response, typename Request, typename Start>
void CallUnary(Request request, int64_t deadline_us, Start start,
               std::function<void(absl::Status, const Response&)> done,
               const std::string& traceparent = {}) {
  struct State {
    grpc::ClientContext context;
    Request request;
    Response response;
  };
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->context.set_deadline(std::chrono::system_clock::now() +
                              std::chrono::microseconds(deadline_us));
  if (!traceparent.empty()) state->context.AddMetadata("traceparent", traceparent);
  start(&state->context, &state->request, &state->response,
        [state, done = std::move(done)](grpc::Status status) {
          done(FromGrpc(status), state->response);
        });
}

}  // namespace skein::services
