// WireThatFallsSilent: a TCP connection to a server on this machine, through a thread that passes
// bytes on until it is told to fall silent. Then both ends see what they see of a host that has
// vanished: no bytes, and no end of the connection.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>

namespace skein::services {

// Takes one connection. Create and destroy it on one thread.
class WireThatFallsSilent {
 public:
  explicit WireThatFallsSilent(int port) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    EXPECT_EQ(pipe(silence_.data()), 0);
    thread_ = std::thread([this, port] { Pass(port); });
  }
  ~WireThatFallsSilent() {
    FallSilent();
    for (const int fd : {listener_, client_, server_, silence_[0], silence_[1]}) {
      if (fd >= 0) close(fd);
    }
  }
  WireThatFallsSilent(const WireThatFallsSilent&) = delete;
  WireThatFallsSilent& operator=(const WireThatFallsSilent&) = delete;

  // Where a client connects to.
  const std::string& endpoint() const { return endpoint_; }

  // When it returns, no byte is passed on any more. Both connections stay open.
  void FallSilent() {
    if (!thread_.joinable()) return;
    EXPECT_EQ(write(silence_[1], "", 1), 1);
    thread_.join();
  }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  // False: it is to fall silent.
  bool AwaitOneOf(int one, int other) const {
    std::array<pollfd, 3> fds = {{{one, POLLIN, 0}, {other, POLLIN, 0}, {silence_[0], POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    return fds[2].revents == 0;
  }
  void Pass(int port) {
    if (!AwaitOneOf(listener_, -1)) return;
    client_ = accept(listener_, nullptr, nullptr);
    server_ = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(port);
    EXPECT_EQ(connect(server_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    while (AwaitOneOf(client_, server_) && PassOn(client_, server_) && PassOn(server_, client_)) {
    }
  }
  // Passes on what has come; false at the end.
  static bool PassOn(int from, int to) {
    std::array<char, 4096> bytes;
    const ssize_t count = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    return count > 0 && send(to, bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL) == count;
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  int client_ = -1;
  int server_ = -1;
  std::array<int, 2> silence_ = {-1, -1};
  std::string endpoint_;
  std::thread thread_;
};

}  // namespace skein::services
