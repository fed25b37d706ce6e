#include "services/http/testing/raw_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace skein::services::http::testing {
namespace {

// Whether a whole request came; false: the connection ended before.
bool ReadRequest(int fd) {
  constexpr char kLength[] = "Content-Length: ";
  std::string in;
  char piece[16 << 10];
  while (true) {
    const size_t end = in.find("\r\n\r\n");
    const size_t length = in.find(kLength);
    if (end != std::string::npos && length < end) {
      const size_t body = std::strtoul(in.c_str() + length + sizeof kLength - 1, nullptr, 10);
      if (in.size() >= end + 4 + body) return true;
    }
    const ssize_t got = ::recv(fd, piece, sizeof piece, 0);
    if (got <= 0) return false;
    in.append(piece, static_cast<size_t>(got));
  }
}

}  // namespace

RawServer::RawServer(std::string answer)
    : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, generic, &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

RawServer::~RawServer() {
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  for (const int fd : connections_) ::close(fd);
  ::close(listener_);
}

void RawServer::Run() {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    connections_.push_back(fd);
    if (!ReadRequest(fd)) continue;
    answered_.fetch_add(1);
    ::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
  }
}

}  // namespace skein::services::http::testing
