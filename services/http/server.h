// An HTTP/1.1 server: few threads, any number of connections, streaming answers.
//
// Per connection one request is answered at a time and in order; what a client sends ahead
// (pipelining) waits in a bounded buffer. A client that goes away is noticed while its answer is
// still being made (Responder::Watch): while an answer is watched, a read is outstanding all the
// time, what does not fit the buffer is dropped, and the connection is closed after the answer, so
// that the client sends those requests anew (RFC 9112 9.3.2). Malformed requests get
// 400, 408, 413, 417, 431 or 501 as OpenAI error objects and the connection is closed. A client
// that half-closes its side counts as gone once its request is complete, as with nginx and Go.
// Every answer carries Date and X-Request-Id (request_id.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/http/routes.h"

namespace skein::services::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  int threads = 2;
  size_t header_bytes_max = 32 << 10;   // more: 431
  size_t body_bytes_max = 8 << 20;      // more: 413
  size_t connections_max = 8192;        // more: 429 and closed
  size_t buffer_bytes_max = 256 << 10;  // unsent bytes of one streamed answer
  // Of the bodies of all connections, from their first byte until their request is dropped; a body
  // beyond it is refused with 429 and Retry-After as soon as it gets there. Null: no bound.
  std::shared_ptr<ByteBudget> bodies = nullptr;
  std::chrono::milliseconds idle_timeout{75'000};   // between requests: closed silently
  std::chrono::milliseconds read_timeout{30'000};   // first byte to last of a request: 408
  std::chrono::milliseconds write_timeout{30'000};  // without one byte taken: closed

  // The last word on every answer before its head is sent, those to malformed requests and to
  // connections over the limit included: may add headers, count and log. The request has no body,
  // and of a malformed one what could be read. On server threads; must not block. May be empty.
  std::function<void(const Request&, Response*)> complete;
};

// Counters since the start, and gauges.
struct ServerStats {
  size_t connections = 0;  // open now
  uint64_t accepted = 0;
  uint64_t refused = 0;  // over connections_max
  uint64_t requests = 0;
};

class ServerCore;

class Server {
 public:
  // Listens and serves `fn` (for instance Routes::Serve) until Stop. UNAVAILABLE names host and
  // port when they cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, RequestFn fn);
  ~Server();  // Stop(0)

  uint16_t port() const;
  ServerStats stats() const;

  // Stops listening, closes idle connections, lets running answers end for up to `grace`, then
  // closes what is left. Blocks; idempotent; not from a server thread.
  void Stop(std::chrono::milliseconds grace);

 private:
  explicit Server(std::shared_ptr<ServerCore> core);

  std::shared_ptr<ServerCore> core_;
};

}  // namespace skein::services::http
