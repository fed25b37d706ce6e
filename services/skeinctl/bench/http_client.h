// An HTTP/1.1 client for one server: many concurrent calls on one thread, with connections reused.
// Everything, including callbacks, runs on the given io_context.
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
#include "boost/beast/core/tcp_stream.hpp"
#include "services/skeinctl/bench/target.h"

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
  explicit HttpClient(boost::asio::io_context* io) : io_(*io) {}
  ~HttpClient();

  // Blocks. UNAVAILABLE: the host name cannot be resolved.
  absl::Status Resolve(const Url& url);

  // REQUIRES Resolve. Never sends a call twice. A kept connection that the server has closed is not
  // reused; if the server closes it while the call is sent, that is an ordinary error.
  void Send(HttpCall call, std::chrono::milliseconds timeout, CallListener listener);

  // Ends all calls with kCancelled. Call on the loop.
  void CancelAll();

 private:
  class Call;
  using Stream = boost::beast::tcp_stream;

  std::unique_ptr<Stream> TakeIdle();  // null: no open connection

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<Stream>> idle_;
  std::vector<std::weak_ptr<Call>> calls_;
};

}  // namespace skein::services::bench
