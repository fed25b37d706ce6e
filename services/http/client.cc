#include "services/http/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/answer_reader.h"
#include "services/tls/contexts.h"
#include "services/tls/tls_files.h"

namespace skein::services::http {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kCancelMs = 100;  // between two looks whether a call was cancelled

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

struct Call {
  std::string where;  // host:port
  Clock::time_point end;
  const std::atomic<bool>* cancelled = nullptr;  // may be null

  absl::Status Late() const { return absl::DeadlineExceededError(where + ": no answer in time"); }
  absl::Status Failed(int error) const {
    return absl::UnavailableError(absl::StrCat(where, ": ", std::strerror(error)));
  }
  // Waits until the socket can be read or written.
  absl::Status Await(int fd, short events) const {
    const int64_t longest = cancelled == nullptr ? 1 << 30 : kCancelMs;
    while (true) {
      if (cancelled != nullptr && cancelled->load()) {
        return absl::CancelledError(where + ": the call was cancelled");
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return Late();
      pollfd one{.fd = fd, .events = events, .revents = 0};
      const int ready = poll(&one, 1, static_cast<int>(std::min<int64_t>(left, longest)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return Failed(errno);
    }
  }
};

absl::Status Connect(const Call& call, const addrinfo& address, int fd) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return call.Failed(errno);
  if (absl::Status ready = call.Await(fd, POLLOUT); !ready.ok()) return ready;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : call.Failed(error);
}

// Connects to the first of the host's addresses that accepts.
absl::StatusOr<std::unique_ptr<Socket>> Connect(const Call& call, const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) {
    return absl::UnavailableError(absl::StrCat(call.where, ": ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  absl::Status last;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    auto made = std::make_unique<Socket>(
        socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    last = made->fd() < 0 ? call.Failed(errno) : Connect(call, *one, made->fd());
    if (last.ok()) return made;
  }
  return last;
}

// While it lives, a write to a connection that the peer has closed raises no SIGPIPE on this
// thread. OpenSSL cannot ask for that at each write.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec none{};
    while (sigtimedwait(&pipe_, nullptr, &none) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

// What went wrong in TLS; waits where the socket has to be waited for.
absl::Status AwaitTls(const Call& call, int fd, SSL* tls, int result) {
  const int error = SSL_get_error(tls, result);
  if (error == SSL_ERROR_WANT_READ) return call.Await(fd, POLLIN);
  if (error == SSL_ERROR_WANT_WRITE) return call.Await(fd, POLLOUT);
  const long checked = SSL_get_verify_result(tls);
  const std::string reason =
      checked != X509_V_OK ? X509_verify_cert_error_string(checked) : tls::LastTlsError();
  return absl::UnavailableError(absl::StrCat(call.where, ": TLS: ", reason));
}

// A connection, plain or in TLS.
class Wire {
 public:
  Wire(const Call& call, std::unique_ptr<Socket> socket)
      : call_(call), socket_(std::move(socket)), tls_(nullptr, SSL_free) {}

  absl::Status StartTls(const tls::Security& security, const std::string& host) {
    const tls::Context context = security.certificates->ClientContext();
    tls_.reset(SSL_new(context.get()));
    SSL_set_fd(tls_.get(), socket_->fd());
    SSL_set_tlsext_host_name(tls_.get(), host.c_str());
    ERR_clear_error();
    for (int result = 0; (result = SSL_connect(tls_.get())) != 1;) {
      if (absl::Status s = AwaitTls(call_, socket_->fd(), tls_.get(), result); !s.ok()) return s;
    }
    const std::string certificate = tls::PeerCertificate(tls_.get());
    const auto names = tls::NamesIn(certificate);
    if (!names.ok()) return names.status();
    const absl::Status server =
        tls::CheckServer(security, tls::RoleSet::All(), *names, certificate, host);
    if (server.ok()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(call_.where, ": ", server.message()));
  }

  absl::Status Send(std::string_view bytes) {
    while (!bytes.empty()) {
      size_t sent = 0;
      absl::Status status = tls_ != nullptr ? WriteTls(bytes, &sent) : Write(bytes, &sent);
      if (!status.ok()) return status;
      bytes.remove_prefix(sent);
    }
    return absl::OkStatus();
  }

  // Reads one answer, whether the server closes after it or not.
  absl::StatusOr<Response> ReadAnswer(std::string_view method) {
    AnswerReader reader(method);
    auto state = AnswerReader::State::kMore;
    char piece[16384];
    while (state == AnswerReader::State::kMore) {
      size_t got = 0;
      bool end = false;
      absl::Status status = tls_ != nullptr ? ReadTls(piece, sizeof piece, &got, &end)
                                            : Read(piece, sizeof piece, &got, &end);
      if (!status.ok()) return status;
      state = end ? reader.TakeEnd() : reader.Take({piece, got});
    }
    if (state == AnswerReader::State::kWhole) return reader.TakeResponse();
    return absl::UnavailableError(absl::StrCat(call_.where, ": ", reader.problem()));
  }

 private:
  absl::Status Write(std::string_view bytes, size_t* sent) const {
    const ssize_t written = send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    *sent = written > 0 ? static_cast<size_t>(written) : 0;
    if (written > 0 || errno == EINTR) return absl::OkStatus();
    return errno == EAGAIN ? call_.Await(socket_->fd(), POLLOUT) : call_.Failed(errno);
  }
  absl::Status WriteTls(std::string_view bytes, size_t* sent) const {
    ERR_clear_error();
    const int result = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), sent);
    if (result == 1) return absl::OkStatus();
    *sent = 0;
    return AwaitTls(call_, socket_->fd(), tls_.get(), result);
  }
  absl::Status Read(char* piece, size_t size, size_t* got, bool* end) const {
    if (absl::Status ready = call_.Await(socket_->fd(), POLLIN); !ready.ok()) return ready;
    const ssize_t read = recv(socket_->fd(), piece, size, 0);
    *end = read == 0;
    *got = read > 0 ? static_cast<size_t>(read) : 0;
    if (read < 0 && errno != EAGAIN && errno != EINTR) return call_.Failed(errno);
    return absl::OkStatus();
  }
  absl::Status ReadTls(char* piece, size_t size, size_t* got, bool* end) const {
    ERR_clear_error();
    const int result = SSL_read_ex(tls_.get(), piece, size, got);
    if (result == 1) return absl::OkStatus();
    *got = 0;
    *end = SSL_get_error(tls_.get(), result) == SSL_ERROR_ZERO_RETURN;
    return *end ? absl::OkStatus() : AwaitTls(call_, socket_->fd(), tls_.get(), result);
  }

  const Call& call_;
  const std::unique_ptr<Socket> socket_;
  const NoPipeSignal no_pipe_signal_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_;  // null: plain text
};

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address;
  int port = 0;
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || at != end) port = 0;
  }
  const bool bracketed = address.host.size() > 2 && address.host[0] == '[' &&
                         address.host[address.host.size() - 1] == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  const bool plain = bracketed || address.host.find(':') == std::string::npos;
  if (address.host.empty() || !plain || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not HOST:PORT"));
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

absl::StatusOr<Response> Ask(const Address& address, const ClientRequest& request,
                             std::chrono::milliseconds timeout, const tls::Security& security) {
  const Call call{absl::StrCat(address.host, ":", address.port), Clock::now() + timeout,
                  request.cancelled};
  auto socket = Connect(call, address);
  if (!socket.ok()) return socket.status();
  Wire wire(call, *std::move(socket));
  if (security.certificates != nullptr) {
    if (absl::Status s = wire.StartTls(security, address.host); !s.ok()) return s;
  }
  std::string text =
      absl::StrCat(request.method, " ", request.target, " HTTP/1.1\r\nHost: ", call.where,
                   "\r\nConnection: close\r\nContent-Length: ", request.body.size(), "\r\n");
  for (const Header& header : request.headers) {
    absl::StrAppend(&text, header.name, ": ", header.value, "\r\n");
  }
  absl::StrAppend(&text, "\r\n", request.body);
  if (absl::Status sent = wire.Send(text); !sent.ok()) return sent;
  return wire.ReadAnswer(request.method);
}

}  // namespace skein::services::http
