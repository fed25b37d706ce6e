#include "services/http/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace skein::services::http {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kAnswerBytesMax = 16 << 20;
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

absl::Status Send(const Call& call, int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (absl::Status ready = call.Await(fd, POLLOUT); !ready.ok()) return ready;
    } else if (errno != EINTR) {
      return call.Failed(errno);
    }
  }
  return absl::OkStatus();
}

// Reads until the server closes.
absl::StatusOr<std::string> ReadAll(const Call& call, int fd) {
  std::string all;
  char piece[16384];
  while (true) {
    if (absl::Status ready = call.Await(fd, POLLIN); !ready.ok()) return ready;
    const ssize_t got = recv(fd, piece, sizeof piece, 0);
    if (got == 0) return all;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return call.Failed(errno);
    if (got > 0) all.append(piece, static_cast<size_t>(got));
    if (all.size() > kAnswerBytesMax) {
      return absl::UnavailableError(absl::StrCat(call.where, ": the answer exceeds 16 MiB"));
    }
  }
}

// The head's lines after the first. False: not HTTP.
bool ParseHead(std::string_view head, Response* response) {
  const std::string_view first = head.substr(0, head.find("\r\n"));
  if (first.substr(0, 7) != "HTTP/1." || first.size() < 12) return false;
  const auto [end, error] = std::from_chars(&first[9], &first[9] + 3, response->status);
  if (error != std::errc() || end != &first[9] + 3) return false;
  head.remove_prefix(std::min(head.size(), first.size() + 2));
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    const size_t colon = std::min(line.find(':'), line.size());
    size_t value = std::min(colon + 1, line.size());
    while (value < line.size() && line[value] == ' ') ++value;
    response->headers.push_back(
        {std::string(line.substr(0, colon)), std::string(line.substr(value))});
  }
  return true;
}

absl::StatusOr<Response> Parse(const Call& call, std::string_view text) {
  Response response;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos || !ParseHead(text.substr(0, end), &response)) {
    return absl::UnavailableError(call.where + ": the answer is not HTTP or is incomplete");
  }
  response.body = std::string(text.substr(end + 4));
  const std::string length(FindHeader(response.headers, "Content-Length"));
  if (!length.empty() && length != std::to_string(response.body.size())) {
    return absl::UnavailableError(call.where + ": the answer is incomplete");
  }
  return response;
}

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
                             std::chrono::milliseconds timeout) {
  const Call call{absl::StrCat(address.host, ":", address.port), Clock::now() + timeout,
                  request.cancelled};
  const auto socket = Connect(call, address);
  if (!socket.ok()) return socket.status();
  std::string text =
      absl::StrCat(request.method, " ", request.target, " HTTP/1.1\r\nHost: ", call.where,
                   "\r\nConnection: close\r\nContent-Length: ", request.body.size(), "\r\n");
  for (const Header& header : request.headers) {
    absl::StrAppend(&text, header.name, ": ", header.value, "\r\n");
  }
  absl::StrAppend(&text, "\r\n", request.body);
  if (absl::Status sent = Send(call, (*socket)->fd(), text); !sent.ok()) return sent;
  const absl::StatusOr<std::string> answer = ReadAll(call, (*socket)->fd());
  if (!answer.ok()) return answer.status();
  return Parse(call, *answer);
}

}  // namespace skein::services::http
