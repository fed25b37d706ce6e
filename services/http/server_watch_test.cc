// What a handler that watches its answer is told: that the client has gone, or has taken what was
// written; and what becomes of requests that the client sends meanwhile.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>

#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/http/testing/server_fixture.h"

namespace skein::services::http {
namespace {

using testing::kLong;
using testing::MakeRequest;
using testing::RawClient;
using testing::ServerTest;
using testing::Why;

enum class Leave { kClose, kReset, kHalfClose };

class GoneTest : public ServerTest,
                 public ::testing::WithParamInterface<std::tuple<Leave, bool>> {};

TEST_P(GoneTest, ClientThatLeavesIsNoticed) {
  StartServer();
  const auto [leave, streaming] = GetParam();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<Gone> gone;
  responder->Watch([&gone](Gone why) { gone.set_value(why); }, {});
  if (streaming) {
    responder->StartStream({});
    responder->Write("x");
    client.ReadHead();
  }
  if (leave == Leave::kClose) client.Close();
  if (leave == Leave::kReset) client.Reset();
  if (leave == Leave::kHalfClose) client.HalfClose();
  EXPECT_EQ(Why(&gone), Gone::kClient);
  responder->Write("into the void");
  responder->Finish();
  bool late = false;
  responder->Watch([&late](Gone) { late = true; }, {});
  EXPECT_TRUE(late);
}

INSTANTIATE_TEST_SUITE_P(All, GoneTest,
                         ::testing::Combine(::testing::Values(Leave::kClose, Leave::kReset,
                                                              Leave::kHalfClose),
                                            ::testing::Bool()));

TEST_F(ServerTest, BackPressureAndDrained) {
  StartServer({.buffer_bytes_max = 64 << 10});
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<void> drained;
  std::once_flag once;
  responder->Watch({}, [&] { std::call_once(once, [&] { drained.set_value(); }); });
  responder->StartStream({});
  size_t written = 0;
  while (responder->Write(std::string(16 << 10, 'x'))) {
    written += 16 << 10;
    ASSERT_LT(written, 1u << 30);
  }
  written += 16 << 10;
  std::thread finisher([&] {
    EXPECT_EQ(drained.get_future().wait_for(kLong), std::future_status::ready);
    responder->Finish();
  });
  EXPECT_EQ(client.ReadResponse().body.size(), written);
  finisher.join();
}

// A handler may write before it watches. A drain in between must still be reported; otherwise the
// answer would wait until its deadline.
TEST_F(ServerTest, ADrainBeforeWatchIsTold) {
  StartServer({.buffer_bytes_max = 64 << 10});
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  responder->StartStream({});
  EXPECT_FALSE(responder->Write(std::string(1 << 20, 'x')));
  std::string chunk;
  EXPECT_EQ(client.ReadHead().status, 200);
  ASSERT_TRUE(client.ReadChunk(&chunk));
  // The next piece is written when the first has been sent, so its arrival proves the drain.
  responder->Write("y");
  ASSERT_TRUE(client.ReadChunk(&chunk));
  EXPECT_EQ(chunk, "y");
  std::promise<void> drained;
  std::once_flag once;
  responder->Watch({}, [&] { std::call_once(once, [&] { drained.set_value(); }); });
  EXPECT_EQ(drained.get_future().wait_for(kLong), std::future_status::ready);
  responder->Finish();
}

// The buffer for pipelined data is already full when the client leaves.
TEST_F(ServerTest, AClientThatSentMuchAheadIsNoticedWhenItLeaves) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<Gone> gone;
  responder->Watch([&gone](Gone why) { gone.set_value(why); }, {});
  std::string ahead;
  while (ahead.size() < (1 << 20)) ahead += MakeRequest("GET", "/livez");
  client.Send(ahead);
  client.Close();
  EXPECT_EQ(Why(&gone), Gone::kClient);
}

// Dropped pipelined data must not produce an error about half a request.
TEST_F(ServerTest, AfterAWatchedAnswerTooMuchSentAheadClosesTheConnection) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  responder->Watch([](Gone) {}, {});
  std::string ahead;  // exceeds the kernel's buffers, so most of it is read when sent
  while (ahead.size() < (32 << 20)) ahead += MakeRequest("GET", "/livez");
  client.Send(ahead);
  responder->Send({});
  const Response answer = client.ReadResponse();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(FindHeader(answer.headers, "Connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

// Unread bytes in the kernel for the server's end of the only connection to `port`, which is in
// this process; -1: none.
int UnreadBytes(uint16_t port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in own{}, peer{};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) continue;
    int unread = 0;
    if (ntohs(own.sin_port) == port && ioctl(fd, FIONREAD, &unread) == 0) return unread;
  }
  return -1;
}

// A watched answer ends while a read is outstanding and the buffer for pipelined data is full. The
// test holds the strand at two points, so that the bytes of that read arrive after the answer's end
// and before the next request is parsed.
TEST_F(ServerTest, WhatComesAtTheEndOfAWatchedAnswerIsPartOfTheNextRequest) {
  ServerOptions options;
  options.header_bytes_max = 1024;
  options.buffer_bytes_max = 10;
  std::promise<void> written, drained, resumed;
  options.complete = [&](const Request& request, Response*) {
    if (request.path == "/hold") written.get_future().wait();
  };
  StartServer(options);
  RawClient client(port());
  const auto send_and_await_read = [&](std::string_view bytes) {
    client.Send(bytes);
    while (UnreadBytes(port()) != 0) std::this_thread::yield();
  };
  client.Send(MakeRequest("HEAD", "/hold"));
  auto responder = Held();
  constexpr size_t kLateBytes = 1000;
  const std::string body(100'000, 'x');
  const std::string next = MakeRequest("POST", "/echo", body);
  // The server reads this much on its own, and more only because the answer is watched.
  const size_t full_bytes = options.header_bytes_max + (32 << 10);
  send_and_await_read(next.substr(0, full_bytes));
  responder->Watch([](Gone) {},
                   [&] {
                     drained.set_value();
                     resumed.get_future().wait();
                   });
  responder->StartStream({});
  responder->Write(std::string(100, 'x'));  // not sent: HEAD requests get no body
  written.set_value();
  drained.get_future().wait();
  responder->Finish();
  send_and_await_read(next.substr(full_bytes, kLateBytes));
  resumed.set_value();
  EXPECT_EQ(client.ReadResponse(true).status, 200);
  client.Send(next.substr(full_bytes + kLateBytes));
  EXPECT_EQ(client.ReadResponse().body.size(), body.size());
}

}  // namespace
}  // namespace skein::services::http
