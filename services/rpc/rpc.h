// gRPC servers and channels as every Skein service makes them: health and reflection on, sizes,
// memory and streams bounded, a deadline on every unary call. Either side pings the other after 5 s
// of silence and closes a connection that stays silent for 5 s more: a host that vanished is
// noticed within 10 s, and its streams end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "services/rpc/status_map.h"

namespace skein::services {

// The largest message that a server takes, if it does not say otherwise: some 5 million tokens.
inline constexpr int kMessageBytesMax = 16 << 20;
// Where the log-probabilities of a prompt come along: 20 each for some 200,000 tokens.
inline constexpr int kLogprobsMessageBytesMax = 64 << 20;
// Calls of one connection at a time; further ones wait at the client. Far above the requests that a
// router or an instance may have (--max-streams, --max-requests), so only a flood meets it.
inline constexpr int kConnectionStreamsMax = 1 << 16;
// What gRPC may hold for a server's connections and calls; beyond it calls are refused
// (RESOURCE_EXHAUSTED).
inline constexpr size_t kServerMemoryBytes = size_t{1} << 30;

struct RpcServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // the bound one, when 0 was asked for
};

// Serves `services` (not owned; they outlive the server) on address "host:port". UNAVAILABLE names
// an address that is taken. Larger messages than `message_bytes_max` are refused
// (RESOURCE_EXHAUSTED).
absl::StatusOr<RpcServer> ServeRpc(const std::string& address,
                                   const std::vector<grpc::Service*>& services,
                                   int message_bytes_max = kMessageBytesMax);

// One channel an endpoint, made on first use. A channel unused for kIdle is dropped at a later Get
// (looked for every kIdle/2): its endpoint may be gone for good, and a channel tries for ever to
// connect again.
// Calls in flight keep theirs. Thread-safe.
class Channels {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kIdle{60};

  explicit Channels(std::function<Clock::time_point()> now = Clock::now) : now_(std::move(now)) {}

  std::shared_ptr<grpc::Channel> Get(const std::string& endpoint);
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<grpc::Channel> channel;
    Clock::time_point used;
  };

  void DropIdle(Clock::time_point now);

  const std::function<Clock::time_point()> now_;
  mutable std::mutex mu_;
  std::map<std::string, Entry> channels_;
  Clock::time_point next_drop_;
};

// The client calls under way of one owner, so that none of their callbacks outlives it.
// Thread-safe.
class CallTracker {
 public:
  ~CallTracker() { CancelAndWait(); }

  void Add(grpc::ClientContext* context);
  // The call of `context` has ended: from here on it is not cancelled, so the context may go. Its
  // callback is still waited for, until Leave.
  void Release(grpc::ClientContext* context);
  // The callback of a released call needs nothing of the owner any more.
  void Leave();
  // Cancels what is under way and whatever is added later, and waits until all callbacks have left.
  void CancelAndWait();

 private:
  std::mutex mu_;
  std::condition_variable none_left_;
  std::set<grpc::ClientContext*> cancellable_;
  int64_t callbacks_ = 0;  // added and not left
  bool stopping_ = false;
};

// FromGrpc; a failure of the transport is logged in gRPC's own words, with the peer's address as
// `context` has it.
absl::Status EndOfCall(const grpc::Status& status, std::string_view peer,
                       const grpc::ClientContext& context);

// Calls a unary method of `peer`, a role as FromGrpc takes it; `done` runs exactly once, on a gRPC
// thread. `start` makes the call with the pointers it is given:
//   CallUnary<v1::AssignResponse>("prefill-worker", &tracker, request, deadline_us,
//                                 [stub](auto* c, auto* q, auto* r, auto f) {
//                                   stub->async()->Assign(c, q, r, std::move(f));
//                                 }, done);
template <typename Response, typename Request, typename Start>
void CallUnary(const char* peer, CallTracker* tracker, Request request, int64_t deadline_us,
               Start start, std::function<void(absl::Status, const Response&)> done) {
  struct State {
    grpc::ClientContext context;
    Request request;
    Response response;
  };
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->context.set_deadline(std::chrono::system_clock::now() +
                              std::chrono::microseconds(deadline_us));
  tracker->Add(&state->context);
  start(&state->context, &state->request, &state->response,
        [peer, tracker, state, done = std::move(done)](grpc::Status status) mutable {
          done(EndOfCall(status, peer, state->context), state->response);
          // The context owns a share of the channel: were it the last, after the tracker's owner
          // has gone, gRPC would wait for this thread on this thread.
          tracker->Release(&state->context);
          state.reset();
          tracker->Leave();
        });
}

// A unary method of a service's stub: &v1::DecodeWorker::StubInterface::async_interface::Renew.
template <typename Service, typename Request, typename Response>
using UnaryMethod = void (Service::StubInterface::async_interface::*)(
    grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

// The same by the method, of the service at the other end of `channel`.
template <typename Service, typename Request, typename Response>
void CallUnary(const char* peer, const std::shared_ptr<grpc::Channel>& channel,
               UnaryMethod<Service, Request, Response> method, CallTracker* tracker,
               Request request, int64_t deadline_us,
               std::type_identity_t<std::function<void(absl::Status, const Response&)>> done) {
  std::shared_ptr<typename Service::Stub> stub = Service::NewStub(channel);
  CallUnary<Response>(
      peer, tracker, std::move(request), deadline_us,
      [stub, method](auto* context, auto* request, auto* response, auto end) {
        (stub->async()->*method)(context, request, response, std::move(end));
      },
      std::move(done));
}

}  // namespace skein::services
