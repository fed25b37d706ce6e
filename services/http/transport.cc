#include "services/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>

namespace skein::services::http {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

Transport::Transport(tcp::socket socket, const tls::Context& context) : socket_(std::move(socket)) {
  if (context == nullptr) return;
  SSL_CTX_up_ref(context.get());
  asio::ssl::context shared(context.get());  // gives its share back; the stream keeps its own
  tls_.emplace(socket_, shared);
}

bool Transport::WasPlainHttp(error_code ec) {
  return ec.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST;
}

std::string Transport::ClientCertificate() {
  return tls_.has_value() ? tls::PeerCertificate(tls_->native_handle()) : "";
}

bool Transport::IsEnd(error_code ec) {
  return ec == asio::error::eof || ec == asio::ssl::error::stream_truncated;
}

void Transport::ShutdownSend() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void Transport::Close() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace skein::services::http
