// An HTTP/1.1 client for one server: many concurrent calls on one thread, with connections reused.
// Everything, including callbacks, runs on the given io_context.
//
// Of an https server the certificate is checked: with a TLS folder (--tls-dir) by its authorities,
// for a role of the cluster or for the host; otherwise by the authorities that this machine trusts,
// for the host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "services/skeinctl/bench/target.h"
#include "services/tls/security.h"

namespace skein::services::bench {

// How a call ended.
enum class CallEnd { kDone, kConnect, kTimeout, kClosed, kCancelled };

// Order of calls: on_status once, on_body as bytes arrive, on_end once and last. After a failure
// on_end comes alone or early. `why` is text for people; empty with kDone.
struct CallListener {
  std::function<void(int status)> on_status;
  std::function<void(std::string_view bytes)> on_body;
  std::function<void(CallEnd end, const std::string& why)> on_end;
};

class HttpClient {
 public:
  // `io` outlives this object, and runs no callback after its destruction.
  explicit HttpClient(boost::asio::io_context* io, tls::Security security = tls::ProcessSecurity());
  ~HttpClient();

  // Blocks. UNAVAILABLE: the host name cannot be resolved, or there is no TLS on this machine.
  absl::Status Resolve(const Url& url);

  // REQUIRES Resolve. Never sends a call twice. A kept connection that the server has closed is not
  // reused; if the server closes it while the call is sent, that is an ordinary error.
  void Send(HttpCall call, std::chrono::milliseconds timeout, CallListener listener);

  // Ends all calls with kCancelled. Call on the loop.
  void CancelAll();

 private:
  class Call;
  class Connection;

  std::unique_ptr<Connection> TakeIdle();  // null: no open connection

  boost::asio::io_context& io_;
  const tls::Security security_;
  std::string host_;
  tls::Context context_;  // null: plain text
  boost::asio::ip::tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::vector<std::weak_ptr<Call>> calls_;
};

}  // namespace skein::services::bench
