// What clients see that connect while a server stops: an answer, or a refused connection.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "services/http/server.h"
#include "services/http/testing/raw_client.h"

namespace skein::services::http {
namespace {

using testing::MakeRequest;
using testing::RawClient;

constexpr auto kLong = std::chrono::seconds(30);

std::unique_ptr<Server> StartServer() {
  auto server = Server::Start({}, [](Request, std::shared_ptr<Responder> responder) {
    Response response;
    response.body = std::string(100, 'x');
    responder->Send(std::move(response));
  });
  EXPECT_TRUE(server.ok()) << server.status();
  return std::move(*server);
}

// One request on a connection of its own. The answer's bytes; or `refused`; else a reset, or an end
// without an answer, and `error` says which.
struct Outcome {
  bool refused = false;
  int error = 0;
  std::string text;
};

Outcome Ask(uint16_t port) {
  Outcome outcome;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    outcome.error = errno;
    outcome.refused = errno == ECONNREFUSED;
  } else {
    const std::string request = MakeRequest("GET", "/", {}, {{"Connection", "close"}});
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) outcome.error = errno;
    char bytes[4096];
    ssize_t size = 0;
    while ((size = ::recv(fd, bytes, sizeof bytes, 0)) > 0) {
      outcome.text.append(bytes, static_cast<size_t>(size));
    }
    if (size < 0) outcome.error = errno;
  }
  ::close(fd);
  return outcome;
}

TEST(ServerStopTest, ClientsThatConnectMeanwhileGetAnAnswerOrAreRefused) {
  constexpr int kRounds = 3, kClients = 16, kAnswersBefore = 200;
  for (int round = 0; round < kRounds; ++round) {
    std::unique_ptr<Server> server = StartServer();
    std::atomic<int> answers = 0, refused = 0, broken = 0, error = 0;
    std::vector<std::thread> clients;
    clients.reserve(kClients);
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&, port = server->port()] {
        for (Outcome outcome; !outcome.refused;) {
          outcome = Ask(port);
          const bool whole = outcome.text.starts_with("HTTP/1.1 ") &&
                             outcome.text.ends_with(std::string(100, 'x'));
          if (outcome.refused) {
            ++refused;
          } else if (outcome.error == 0 && whole) {
            ++answers;
          } else {
            ++broken;
            error = outcome.error;
          }
        }
      });
    }
    while (answers + broken < kAnswersBefore) std::this_thread::yield();
    server->Stop(kLong);
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(broken, 0) << "of " << answers + broken << ", the last one with error " << error;
    EXPECT_EQ(refused, kClients);
  }
}

TEST(ServerStopTest, AFirstRequestThatComesAfterTheStopHasBegunIsAnswered) {
  std::unique_ptr<Server> server = StartServer();
  std::vector<std::unique_ptr<RawClient>> fresh;
  fresh.reserve(8);
  for (int i = 0; i < 8; ++i) fresh.push_back(std::make_unique<RawClient>(server->port()));
  RawClient idle(server->port());
  idle.Send(MakeRequest("GET", "/"));
  EXPECT_EQ(idle.ReadResponse().status, 200);
  std::thread stopper([&] { server->Stop(kLong); });
  EXPECT_TRUE(idle.AtEnd());  // so the stop has begun
  for (auto& client : fresh) {
    EXPECT_TRUE(client->Send(MakeRequest("GET", "/")));
    const int status = client->ReadResponse().status;
    EXPECT_TRUE(status == 200 || status == 503) << status;  // 503: this thread stood still for long
    EXPECT_TRUE(client->AtEnd());
    client->Close();
  }
  stopper.join();
}

TEST(ServerStopTest, AConnectionThatBringsNothingIsTold) {
  std::unique_ptr<Server> server = StartServer();
  RawClient silent(server->port());
  std::thread stopper([&] { server->Stop(kLong); });
  const Response told = silent.ReadResponse();
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(FindHeader(told.headers, "Connection"), "close");
  EXPECT_EQ(FindHeader(told.headers, "Retry-After"), "1");
  EXPECT_TRUE(silent.AtEnd());
  silent.Close();
  stopper.join();
}

}  // namespace
}  // namespace skein::services::http
