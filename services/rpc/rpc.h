// gRPC servers and channels with the settings of every Skein service: health and reflection on;
// message sizes, memory and streams bounded; a deadline on every unary call. Either side pings the
// other after 5 s of silence and closes a connection that stays silent for 5 s more. So a vanished
// host is noticed within 10 s, and its streams end.
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
#include "services/rpc/message_limits.h"
#include "services/rpc/status_map.h"
#include "services/tls/roles.h"
#include "services/tls/security.h"

namespace skein::services {

// Concurrent calls of one connection; further ones wait at the client. Far above the requests of a
// router or an instance (--max-streams, --max-requests), so only a flood reaches it.
inline constexpr int kConnectionStreamsMax = 1 << 16;
// Memory that gRPC may use for a server's connections and messages. Beyond it gRPC refuses messages
// (RESOURCE_EXHAUSTED) and closes connections (UNAVAILABLE).
inline constexpr size_t kServerMemoryBytes = size_t{1} << 30;

struct RpcServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // the port actually bound
};

// Serves `services` (not owned; they outlive the server) on address "host:port". UNAVAILABLE names
// an address that is in use. Messages above `message_bytes_max` are refused (RESOURCE_EXHAUSTED).
// `security` is as ServerCredentials (credentials.h) takes it.
absl::StatusOr<RpcServer> ServeRpc(const std::string& address,
                                   const std::vector<grpc::Service*>& services,
                                   int message_bytes_max = kMessageBytesMax,
                                   size_t memory_bytes = kServerMemoryBytes,
                                   const tls::Security& security = tls::ProcessSecurity());

// One channel per endpoint, made on first use. A later Get drops channels unused for kIdle (checked
// every kIdle/2): the endpoint may be gone for good, and a channel reconnects forever. Calls in
// flight keep their channel alive. Thread-safe.
class Channels {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kIdle{60};
  static constexpr std::chrono::seconds kFresh{1};

  explicit Channels(std::function<Clock::time_point()> now = Clock::now,
                    tls::Security security = tls::ProcessSecurity());

  // `wanted`: what the process at the endpoint is, by its certificate (MakeChannel in
  // credentials.h). Without TLS nobody asks.
  std::shared_ptr<grpc::Channel> Get(const std::string& endpoint,
                                     tls::RoleSet wanted = tls::RoleSet::All());
  // The next Get makes a new channel, which looks the name up anew, unless this one was made within
  // kFresh. For a process that is gone: one that is started again may have the same name at another
  // address, as pods have. A channel tries the old address first, and where nobody answers there,
  // that takes seconds. The old channel is kept for kIdle: gRPC (1.51) does not always survive that
  // one is destroyed at the moment in which its connection ends.
  void Forget(const std::string& endpoint);
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<grpc::Channel> channel;
    Clock::time_point used;
    Clock::time_point made;
  };

  using Key = std::pair<std::string, unsigned>;  // endpoint, roles

  void DropIdle(Clock::time_point now);

  const std::function<Clock::time_point()> now_;
  const tls::Security security_;
  mutable std::mutex mu_;
  std::map<Key, Entry> channels_;
  std::vector<Entry> forgotten_;
  Clock::time_point next_drop_;
};

// Tracks one owner's client calls in flight, so that no callback outlives the owner. Thread-safe.
class CallTracker {
 public:
  ~CallTracker() { CancelAndWait(); }

  void Add(grpc::ClientContext* context);
  // The call of `context` has ended and can no longer be cancelled, so the context may be
  // destroyed. Its callback is still waited for, until Leave.
  void Release(grpc::ClientContext* context);
  // The callback of a released call no longer uses the owner.
  void Leave();
  // Cancels all calls, including those added later, and waits until all callbacks have left.
  void CancelAndWait();

 private:
  std::mutex mu_;
  std::condition_variable none_left_;
  std::set<grpc::ClientContext*> cancellable_;
  int64_t callbacks_ = 0;  // added and not left
  bool stopping_ = false;
};

// FromGrpc. Logs a transport failure with gRPC's own text and the peer's address from `context`:
// the first one, and then one every 30 s while calls to that address fail.
absl::Status EndOfCall(const grpc::Status& status, std::string_view peer,
                       const grpc::ClientContext& context);

// Calls a unary method of `peer` (a role, see FromGrpc). `done` runs exactly once, on a gRPC
// thread. `start` makes the call with the pointers it gets:
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
          // The context shares ownership of the channel. If it were the last owner, after the
          // tracker's owner has gone, gRPC would wait for this thread on this thread.
          tracker->Release(&state->context);
          state.reset();
          tracker->Leave();
        });
}

// A unary method of a service's stub: &v1::DecodeWorker::StubInterface::async_interface::Renew.
template <typename Service, typename Request, typename Response>
using UnaryMethod = void (Service::StubInterface::async_interface::*)(
    grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

// The same by method, for the service at the other end of `channel`.
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
