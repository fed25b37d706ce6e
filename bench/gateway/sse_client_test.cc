// The client beside a server that closes connections when it has answered on them.
#include "bench/gateway/sse_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>

#include "gtest/gtest.h"
#include "scheduler/vocabulary/check.h"

namespace skein::bench {
namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    "46\r\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\ndata: "
    "[DONE]\n\n\r\n"
    "0\r\n\r\n";

class Server {
 public:
  Server() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    SKEIN_CHECK(bind(fd_, any, size) == 0 && listen(fd_, 16) == 0);
    SKEIN_CHECK(getsockname(fd_, any, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~Server() { close(fd_); }

  int port() const { return port_; }
  int Accept() const {
    const int fd = accept(fd_, nullptr, nullptr);
    SKEIN_CHECK(fd >= 0);
    return fd;
  }
  // Reads a request of the body "{}".
  static void Read(int fd) {
    std::string in;
    std::array<char, 4096> buffer;
    while (!in.ends_with("\r\n\r\n{}")) {
      const ssize_t bytes = recv(fd, buffer.data(), buffer.size(), 0);
      SKEIN_CHECK(bytes > 0);
      in.append(buffer.data(), static_cast<size_t>(bytes));
    }
  }
  static void Answer(int fd, std::string_view text = kAnswer) {
    SKEIN_CHECK(send(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(SseClient, AConnectionThatClosesWhileIdleIsMadeAnewAndIsNoError) {
  Server server;
  std::thread serving([&] {
    const int first = server.Accept(), second = server.Accept();
    Server::Read(first);
    Server::Read(second);
    Server::Answer(first);
    close(first);
    const int again = server.Accept();  // the client has seen that the first one closed
    Server::Answer(second);
    close(second);
    close(again);
  });
  SseClient client(server.port(), 2);
  const Samples samples = client.Run("{}", {.streams_max = 2});
  EXPECT_EQ(samples.streams.size(), 2u);
  EXPECT_EQ(samples.errors, 0) << samples.first_error;
  serving.join();
}

TEST(SseClient, AConnectionThatClosesBetweenTwoRunsIsMadeAnew) {
  Server server;
  SseClient client(server.port(), 1);
  for (int run = 0; run < 2; ++run) {
    std::thread serving([&] {
      const int fd = server.Accept();
      Server::Read(fd);
      Server::Answer(fd);
      close(fd);
    });
    const Samples samples = client.Run("{}", {.streams_max = 1});
    serving.join();
    EXPECT_EQ(samples.streams.size(), 1u);
    EXPECT_EQ(samples.errors, 0) << samples.first_error;
  }
}

TEST(SseClient, AConnectionThatClosesInAnAnswerIsAnError) {
  Server server;
  std::thread serving([&] {
    const int fd = server.Accept();
    Server::Read(fd);
    Server::Answer(fd, kAnswer.substr(0, kAnswer.size() - 3));
    close(fd);
    close(server.Accept());
  });
  SseClient client(server.port(), 1);
  const Samples samples = client.Run("{}", {.streams_max = 1});
  serving.join();
  EXPECT_EQ(samples.streams.size(), 0u);
  EXPECT_EQ(samples.errors, 1);
}

}  // namespace
}  // namespace skein::bench
