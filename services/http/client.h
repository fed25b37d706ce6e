// One blocking HTTP request, on its own connection.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/message.h"
#include "services/tls/security.h"

namespace skein::services::http {

struct Address {
  std::string host;
  uint16_t port = 0;
};

// "HOST:PORT" or "[IPV6]:PORT". INVALID_ARGUMENT names the value.
absl::StatusOr<Address> ParseAddress(const std::string& text);

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";
  std::vector<Header> headers;
  std::string body = {};
  // Set by another thread: the call ends with CANCELLED within a tenth of a second. May be null.
  const std::atomic<bool>* cancelled = nullptr;
};

// UNAVAILABLE: nothing listens, or the answer is not HTTP. DEADLINE_EXCEEDED: no complete answer
// within `timeout`. Both name the address. Answers may have up to 16 MiB. A server that keeps the
// connection open after its answer is not waited for. Where the process has
// certificates it speaks TLS, and the server's must name a role or be for the host.
absl::StatusOr<Response> Ask(const Address& address, const ClientRequest& request,
                             std::chrono::milliseconds timeout,
                             const tls::Security& security = tls::ProcessSecurity());

}  // namespace skein::services::http
