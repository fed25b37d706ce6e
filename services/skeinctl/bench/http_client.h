// An HTTP/1.1 client of one server: many calls at a time on one thread, connections kept for the
// next call. Everything happens on the io_context that is given; callbacks are called there.
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

// Called in this order: on_status once, on_body as bytes come, on_end once and last. A call that
// fails has on_end alone, or ends early. `why` is for people; empty with kDone.
struct CallListener {
  std::function<void(int status)> on_status;
  std::function<void(std::string_view bytes)> on_body;
  std::function<void(CallEnd end, const std::string& why)> on_end;
};

class HttpClient {
 public:
  // `io` outlives this, and runs no callback after this is gone.
  explicit HttpClient(boost::asio::io_context* io) : io_(*io) {}
  ~HttpClient();

  // Blocks. UNAVAILABLE: the host has no address.
  absl::Status Resolve(const Url& url);

  // REQUIRES Resolve. No call is sent twice: a kept connection that the server has closed meanwhile
  // is not used, and one that it closes just then is an error like any other.
  void Send(HttpCall call, std::chrono::milliseconds timeout, CallListener listener);

  // Ends all calls with kCancelled, from the loop.
  void CancelAll();

 private:
  class Call;
  using Stream = boost::beast::tcp_stream;

  std::unique_ptr<Stream> TakeIdle();  // null: none that is still open

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<Stream>> idle_;
  std::vector<std::weak_ptr<Call>> calls_;
};

}  // namespace skein::services::bench
