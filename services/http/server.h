// An HTTP/1.1 server with few threads, any number of connections, and streaming answers.
//
// Each connection answers one request at a time, in order. Pipelined requests wait in a bounded
// buffer. While an answer is watched (Responder::Watch), a read is always outstanding, so a client
// that leaves is noticed at once. Pipelined data beyond the buffer is then dropped, and the
// connection is closed after the answer, so that the client repeats those requests (RFC 9112
// 9.3.2). Malformed requests get 400, 408, 413, 417, 431 or 501 as OpenAI error objects, and the
// connection is closed. A client that half-closes counts as gone once its request is complete, as
// with nginx and Go. Every answer carries Date and X-Request-Id (request_id.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/http/body_sink.h"
#include "services/http/routes.h"
#include "services/tls/certificates.h"

namespace skein::services::http {

inline constexpr std::chrono::hours kSunkBodyMax{1};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  int threads = 2;
  size_t header_bytes_max = 32 << 10;   // more: 431
  size_t body_bytes_max = 8 << 20;      // more: 413
  size_t connections_max = 8192;        // more: 429 and closed
  size_t buffer_bytes_max = 256 << 10;  // unsent bytes of one streamed answer
  // Budget for the bodies of all connections, from the first byte until the request is dropped. A
  // body that exceeds it is refused with 429 and Retry-After at once. Null: no limit. What a sink
  // takes is not counted here.
  std::shared_ptr<ByteBudget> bodies = nullptr;
  // What becomes of a request's body. Empty: it is collected, up to body_bytes_max.
  BodyPlanFn plan_body;
  size_t planned_bytes_max = 0;                    // the largest BodyPlan::bytes_max
  std::chrono::milliseconds idle_timeout{75'000};  // between requests: closed silently
  // First byte to last of a request: 408. Where a sink takes the body: between two pieces of it,
  // and kSunkBodyMax for all.
  std::chrono::milliseconds read_timeout{30'000};
  std::chrono::milliseconds write_timeout{30'000};  // no byte accepted: closed
  // An answer that is still being sent at answer_timeout + write_timeout after its request has
  // arrived is cut off, however steadily the client reads. 0: no limit.
  std::chrono::milliseconds answer_timeout{0};

  // With them the port speaks TLS only; null: plain text. A client without TLS is told so (400).
  std::shared_ptr<tls::Certificates> certificates = nullptr;
  // Clients without a certificate may only ask the probes: 403.
  bool need_certificate = false;

  // Called for every answer before its head is sent, including answers to malformed requests and to
  // connections over the limit. May add headers, count and log. The request has no body, and after
  // a parse error only the fields read so far. Runs on server threads; must not block. May be
  // empty.
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
  // port if they cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, RequestFn fn);
  ~Server();  // Stop(0)

  uint16_t port() const;
  ServerStats stats() const;

  // Closes connections that are idle after an answer, and from now on each connection after the
  // answer under way, or after its first one: clients that keep connections open go elsewhere. One
  // that has just been opened is answered once. New connections are accepted, so that probes are
  // still answered. Does not block; idempotent.
  void BeginDrain();

  // Connections that are opened from now on stay open again; those that the drain has met still end
  // after their answers. Does not block; idempotent.
  void EndDrain();

  // Stops listening, closes idle connections, waits up to `grace` for running answers, then closes
  // the rest. A client that connects meanwhile gets an answer or is refused, and never reset: for
  // 0.1 s (at most half of `grace`) new connections wait, those whose handshake has begun are still
  // accepted, and one that brings no request within 0.2 s is told 503. Blocks; idempotent; not from
  // a server thread.
  void Stop(std::chrono::milliseconds grace);

 private:
  explicit Server(std::shared_ptr<ServerCore> core);

  std::shared_ptr<ServerCore> core_;
};

}  // namespace skein::services::http
