#include "services/skeinctl/bench/http_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/connect.hpp"
#include "boost/beast/core/bind_handler.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http.hpp"

namespace skein::services::bench {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

// One call, from connection to end. Lives as long as one of its operations is in progress.
class HttpClient::Call : public std::enable_shared_from_this<HttpClient::Call> {
 public:
  Call(HttpClient* client, HttpCall call, std::chrono::milliseconds timeout, CallListener listener)
      : client_(client),
        listener_(std::move(listener)),
        until_(std::chrono::steady_clock::now() + timeout) {
    request_.method_string(call.method);
    request_.target(call.target);
    request_.version(11);
    for (const auto& [name, value] : call.headers) request_.set(name, value);
    request_.body() = std::move(call.body);
    request_.prepare_payload();
  }

  void Start() {
    stream_ = client_->TakeIdle();
    stream_ == nullptr ? Connect() : Write();
  }

  void Cancel() {
    cancelled_ = true;
    if (stream_ != nullptr) stream_->cancel();
  }

 private:
  template <typename Fn>
  auto Bind(Fn fn) {
    return beast::bind_front_handler(fn, shared_from_this());
  }

  void Connect() {
    stream_ = std::make_unique<Stream>(client_->io_);
    stream_->expires_at(until_);
    stream_->async_connect(client_->addresses_, Bind(&Call::OnConnect));
  }
  void OnConnect(error_code error, const asio::ip::tcp::endpoint&) {
    if (error) return End(error, CallEnd::kConnect);
    error_code ignored;
    stream_->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    Write();
  }

  void Write() {
    parser_.emplace();
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // for Boost, none would mean 0
    stream_->expires_at(until_);
    beast::http::async_write(*stream_, request_, Bind(&Call::OnWrite));
  }
  void OnWrite(error_code error, size_t) {
    if (error) return End(error, CallEnd::kClosed);
    Read();
  }

  void Read() { beast::http::async_read_some(*stream_, buffer_, *parser_, Bind(&Call::OnRead)); }
  void OnRead(error_code error, size_t) {
    if (!answered_ && parser_->is_header_done()) {
      answered_ = true;
      listener_.on_status(static_cast<int>(parser_->get().result_int()));
    }
    if (!parser_->get().body().empty()) {
      const std::string piece = std::exchange(parser_->get().body(), {});
      listener_.on_body(piece);
    }
    if (error) return End(error, CallEnd::kClosed);
    if (!parser_->is_done()) return Read();
    if (parser_->keep_alive()) {
      stream_->expires_never();
      client_->idle_.push_back(std::move(stream_));
    }
    listener_.on_end(CallEnd::kDone, "");
  }

  void End(error_code error, CallEnd end) {
    if (error == beast::error::timeout) end = CallEnd::kTimeout;
    if (cancelled_) end = CallEnd::kCancelled;
    listener_.on_end(end, error.message());
  }

  HttpClient* const client_;
  CallListener listener_;
  const std::chrono::steady_clock::time_point until_;
  beast::http::request<beast::http::string_body> request_;
  std::unique_ptr<Stream> stream_;
  beast::flat_buffer buffer_;
  std::optional<beast::http::response_parser<beast::http::string_body>> parser_;
  bool answered_ = false;
  bool cancelled_ = false;
};

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Stream> HttpClient::TakeIdle() {
  while (!idle_.empty()) {
    std::unique_ptr<Stream> stream = std::move(idle_.back());
    idle_.pop_back();
    char byte = 0;
    const int handle = stream->socket().native_handle();
    const bool silent = ::recv(handle, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
    if (silent) return stream;  // neither closed nor with unexpected bytes
  }
  return nullptr;
}

absl::Status HttpClient::Resolve(const Url& url) {
  error_code error;
  asio::ip::tcp::resolver resolver(io_);
  addresses_ = resolver.resolve(url.host, url.port, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(url.host, ": ", error.message()));
}

void HttpClient::Send(HttpCall call, std::chrono::milliseconds timeout, CallListener listener) {
  std::erase_if(calls_, [](const auto& one) { return one.expired(); });
  auto started = std::make_shared<Call>(this, std::move(call), timeout, std::move(listener));
  calls_.push_back(started);
  started->Start();
}

void HttpClient::CancelAll() {
  for (const auto& one : std::vector(calls_)) {
    if (const auto call = one.lock()) call->Cancel();
  }
}

}  // namespace skein::services::bench
