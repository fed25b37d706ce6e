// Transport: the bytes of one connection, plain or in TLS. Internal to services/http. On the
// connection's strand; at most one read and one write at a time.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <string>
#include <utility>

#include "services/tls/contexts.h"

namespace skein::services::http {

class Transport {
 public:
  // `context`: of the server's side of TLS; null: plain text.
  Transport(boost::asio::ip::tcp::socket socket, const tls::Context& context);

  boost::asio::ip::tcp::socket& socket() { return socket_; }
  bool encrypted() const { return tls_.has_value(); }

  // Calls handler(ec) when it is done, or has failed. REQUIRES: encrypted.
  template <typename Handler>
  void Handshake(Handler handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::move(handler));
  }
  // Whether a failed handshake met a client that speaks HTTP without TLS.
  static bool WasPlainHttp(boost::system::error_code ec);
  // Plain text from here on.
  void Unwrap() { tls_.reset(); }

  // The client's certificate in PEM; "": it has presented none.
  std::string ClientCertificate();

  template <typename Handler>
  void Read(boost::asio::mutable_buffer buffer, Handler handler) {
    if (tls_.has_value() && !said_goodbye_) {
      tls_->async_read_some(buffer, std::move(handler));
    } else {
      socket_.async_read_some(buffer, std::move(handler));
    }
  }
  template <typename Handler>
  void Write(boost::asio::const_buffer buffer, Handler handler) {
    if (tls_.has_value()) {
      tls_->async_write_some(buffer, std::move(handler));
    } else {
      socket_.async_write_some(buffer, std::move(handler));
    }
  }

  // Whether a read has ended because the client sends nothing more.
  static bool IsEnd(boost::system::error_code ec);

  // Sends nothing more. done() is called when what still arrives can be read again, to be
  // discarded: in TLS when the client has taken note, or has sent anything else.
  template <typename Done>
  void EndSending(Done done) {
    if (!tls_.has_value()) {
      ShutdownSend();
      return done();
    }
    tls_->async_shutdown([this, done = std::move(done)](boost::system::error_code) {
      said_goodbye_ = true;
      ShutdownSend();
      done();
    });
  }

  void Close();

 private:
  void ShutdownSend();

  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  bool said_goodbye_ = false;  // what arrives is discarded, so nothing is decrypted any more
};

}  // namespace skein::services::http
