#include "services/skeinctl/bench/http_client.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/beast/core/bind_handler.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "services/tls/contexts.h"
#include "services/tls/tls_files.h"

namespace skein::services::bench {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

namespace {

// Of a machine's own authorities.
absl::StatusOr<tls::Context> PublicContext() {
  tls::Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (context == nullptr || SSL_CTX_set_default_verify_paths(context.get()) != 1) {
    return absl::UnavailableError("TLS: " + tls::LastTlsError());
  }
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

}  // namespace

// A connection, plain or in TLS. At most one operation is in progress.
class HttpClient::Connection {
 public:
  // `context` null: plain text.
  Connection(asio::io_context* io, const tls::Context& context) : stream_(*io) {
    if (context == nullptr) return;
    SSL_CTX_up_ref(context.get());
    asio::ssl::context shared(context.get());  // gives its share back; the stream keeps its own
    tls_.emplace(stream_, shared);
  }

  beast::tcp_stream& stream() { return stream_; }
  bool encrypted() const { return tls_.has_value(); }

  // REQUIRES encrypted, as the next two.
  template <typename Handler>
  void Handshake(Handler handler) {
    tls_->async_handshake(asio::ssl::stream_base::client, std::move(handler));
  }
  SSL* session() { return tls_->native_handle(); }

  template <typename Message, typename Handler>
  void Write(Message& message, Handler handler) {
    if (tls_.has_value()) {
      beast::http::async_write(*tls_, message, std::move(handler));
    } else {
      beast::http::async_write(stream_, message, std::move(handler));
    }
  }
  template <typename Parser, typename Handler>
  void Read(beast::flat_buffer& buffer, Parser& parser, Handler handler) {
    if (tls_.has_value()) {
      beast::http::async_read_some(*tls_, buffer, parser, std::move(handler));
    } else {
      beast::http::async_read_some(stream_, buffer, parser, std::move(handler));
    }
  }

 private:
  beast::tcp_stream stream_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
};

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
    connection_ = client_->TakeIdle();
    connection_ == nullptr ? Connect() : Write();
  }

  void Cancel() {
    cancelled_ = true;
    if (connection_ != nullptr) connection_->stream().cancel();
  }

 private:
  template <typename Fn>
  auto Bind(Fn fn) {
    return beast::bind_front_handler(fn, shared_from_this());
  }

  void Connect() {
    connection_ = std::make_unique<Connection>(&client_->io_, client_->context_);
    connection_->stream().expires_at(until_);
    connection_->stream().async_connect(client_->addresses_, Bind(&Call::OnConnect));
  }
  void OnConnect(error_code error, const asio::ip::tcp::endpoint&) {
    if (error) return End(error, CallEnd::kConnect);
    error_code ignored;
    connection_->stream().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    if (!connection_->encrypted()) return Write();
    const std::string& host = client_->host_;
    SSL* const session = connection_->session();
    SSL_set_tlsext_host_name(session, host.c_str());
    if (client_->security_.certificates == nullptr) ExpectHost(session, host);
    connection_->Handshake(Bind(&Call::OnHandshake));
  }
  static void ExpectHost(SSL* session, const std::string& host) {
    X509_VERIFY_PARAM* const expected = SSL_get0_param(session);
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1) return;
    X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size());
  }
  std::string WhyNoHandshake(error_code error) const {
    const long checked = SSL_get_verify_result(connection_->session());
    if (checked != X509_V_OK) {
      const char* advice = client_->security_.certificates == nullptr
                               ? " (give --tls-dir with ca.crt of the server's authority)"
                               : "";
      return std::string(X509_verify_cert_error_string(checked)) + advice;
    }
    const bool is_plain = error.category() == asio::error::get_ssl_category() &&
                          ERR_GET_REASON(error.value()) == SSL_R_WRONG_VERSION_NUMBER;
    return error.message() + (is_plain ? " (the port does not speak TLS: use http://)" : "");
  }
  void OnHandshake(error_code error) {
    if (error && error != beast::error::timeout && !cancelled_) {
      return listener_.on_end(CallEnd::kConnect, "TLS: " + WhyNoHandshake(error));
    }
    if (error) return End(error, CallEnd::kConnect);
    const absl::Status server = CheckServer();
    if (!server.ok()) return listener_.on_end(CallEnd::kConnect, std::string(server.message()));
    Write();
  }
  // Authorities of a cluster vouch for roles; its certificate may name no host.
  absl::Status CheckServer() const {
    if (client_->security_.certificates == nullptr) return absl::OkStatus();
    const std::string certificate = tls::PeerCertificate(connection_->session());
    const auto names = tls::NamesIn(certificate);
    if (!names.ok()) return names.status();
    return tls::CheckServer(client_->security_, tls::RoleSet::All(), *names, certificate,
                            client_->host_);
  }

  void Write() {
    parser_.emplace();
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // for Boost, none would mean 0
    connection_->stream().expires_at(until_);
    connection_->Write(request_, Bind(&Call::OnWrite));
  }
  void OnWrite(error_code error, size_t) {
    if (error) return End(error, CallEnd::kClosed);
    Read();
  }

  void Read() { connection_->Read(buffer_, *parser_, Bind(&Call::OnRead)); }
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
      connection_->stream().expires_never();
      client_->idle_.push_back(std::move(connection_));
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
  std::unique_ptr<Connection> connection_;
  beast::flat_buffer buffer_;
  std::optional<beast::http::response_parser<beast::http::string_body>> parser_;
  bool answered_ = false;
  bool cancelled_ = false;
};

HttpClient::HttpClient(asio::io_context* io, tls::Security security)
    : io_(*io), security_(std::move(security)) {}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Connection> HttpClient::TakeIdle() {
  while (!idle_.empty()) {
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    char byte = 0;
    const int handle = connection->stream().socket().native_handle();
    const bool silent = ::recv(handle, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
    if (silent) return connection;  // neither closed nor with unexpected bytes
  }
  return nullptr;
}

absl::Status HttpClient::Resolve(const Url& url) {
  host_ = url.host;
  if (url.https) {
    auto context = security_.certificates != nullptr
                       ? absl::StatusOr<tls::Context>(security_.certificates->ClientContext())
                       : PublicContext();
    if (!context.ok()) return context.status();
    context_ = *std::move(context);
  }
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
