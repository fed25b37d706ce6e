// What a server refuses or cuts off: malformed requests, and clients that ask or hold too much.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/host/testing/no_descriptors_left.h"
#include "services/http/byte_budget.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/http/testing/server_fixture.h"

namespace skein::services::http {
namespace {

using testing::Fetch;
using testing::kLong;
using testing::MakeRequest;
using testing::RawClient;
using testing::ServerTest;
using testing::Why;

TEST_F(ServerTest, LimitsAndMalformedRequestsAreRefused) {
  ServerOptions options;
  options.header_bytes_max = 1024;
  options.body_bytes_max = 100;
  StartServer(options);
  const std::string get = "GET /livez HTTP/1.1\r\nHost: a\r\n";
  const std::string post = "POST /echo HTTP/1.1\r\nHost: a\r\n";
  const std::string big(200, 'x');
  const std::vector<std::pair<std::string, int>> cases = {
      {get + "X: " + std::string(2000, 'y') + "\r\n\r\n", 431},
      {"GET /" + std::string(4000, 'y'), 431},
      {post + "Content-Length: 101\r\n\r\n", 413},
      {post + "Transfer-Encoding: chunked\r\n\r\nc8\r\n" + big + "\r\n0\r\n\r\n", 413},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\nConnection: close\r\n\r\n", 501},
      {post + "Expect: miracle\r\n\r\n", 417},
      {get + "\r\n" + "nonsense\r\n\r\n", 200},  // the second one is refused after the first
      {"GET /livez HTTP/1.1\r\n\r\n", 400},
      {get + "Host: b\r\n\r\n", 400},
      {get + "Bad Name: b\r\n\r\n", 400},
      {"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 400},
      {"GET livez HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /%0 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 18), 400},
  };
  for (const auto& [text, status] : cases) {
    RawClient client(port());
    client.Send(text);
    const Response response = client.ReadResponse();
    EXPECT_EQ(response.status, status) << text.substr(0, 100);
    if (status != 200) {
      EXPECT_NE(response.body.find("{\"error\":{\"message\":"), std::string::npos);
      EXPECT_EQ(FindHeader(response.headers, "Connection"), "close");
    }
  }
  EXPECT_EQ(Fetch(port(), "GET", "/livez").status, 200);
}

TEST_F(ServerTest, TruncatedAndSlowRequests) {
  ServerOptions options;
  options.read_timeout = std::chrono::milliseconds(50);
  options.idle_timeout = std::chrono::milliseconds(50);
  StartServer(options);
  RawClient cut(port());
  cut.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
  cut.HalfClose();
  EXPECT_EQ(cut.ReadResponse().status, 400);
  RawClient slow(port());
  slow.Send("POST /echo HTTP/1.1\r\nHost");
  EXPECT_EQ(slow.ReadResponse().status, 408);
  RawClient idle(port());
  EXPECT_TRUE(idle.AtEnd());
}

// A slow-loris: each byte comes long before any timeout, and the header never ends.
TEST_F(ServerTest, AClientThatDripsItsHeaderIsCutOff) {
  ServerOptions options;
  options.read_timeout = std::chrono::milliseconds(200);
  StartServer(options);
  RawClient loris(port());
  loris.Send("POST /echo HTTP/1.1\r\nX: ");
  Response answer;
  answer.status = 0;  // none yet
  for (int drips = 0; answer.status == 0 && drips < 4000; ++drips) {
    loris.Send("a");
    answer = loris.ReadResponse(/*head_only=*/false, /*timeout_ms=*/5);
  }
  EXPECT_EQ(answer.status, 408) << "the time counts from the first byte";
  EXPECT_EQ(Fetch(port(), "GET", "/livez").status, 200);
}

// As many clients as allowed, each with a body that never ends.
TEST_F(ServerTest, SlowLargeBodiesAreBoundedTogether) {
  constexpr size_t kTotal = 4 << 20;
  constexpr size_t kPiece = 512 << 10;
  ServerOptions options;
  options.bodies = std::make_shared<ByteBudget>(kTotal);
  StartServer(options);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 16; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n" +
                      std::string(kPiece, 'x'));
  }
  // Six of them fill the budget for large bodies; the others are refused before they send the rest.
  while (slow.size() > 6) {
    std::erase_if(slow, [](const auto& client) {
      const Response answer = client->ReadResponse(false, 10);
      if (answer.status == 0) return false;
      EXPECT_EQ(answer.status, 429);
      EXPECT_EQ(FindHeader(answer.headers, "Retry-After"), "1");
      EXPECT_NE(answer.body.find("(--max-held-bytes, 4194304)"), std::string::npos) << answer.body;
      return true;
    });
  }
  EXPECT_GE(options.bodies->refusals(), 10u);
  EXPECT_LE(options.bodies->held_bytes(), kTotal / 4 * 3);
  EXPECT_EQ(Fetch(port(), "POST", "/echo", std::string(32 << 10, 'y')).status, 200);
  slow.clear();
  server_->Stop(kLong);
  EXPECT_EQ(options.bodies->held_bytes(), 0u);
}

// The client reads slowly: the share is that of the bytes that are still here.
TEST_F(ServerTest, AnAnswerHoldsItsShareUntilItHasBeenSent) {
  ServerOptions options;
  options.bodies = std::make_shared<ByteBudget>(64 << 20);
  StartServer(options);
  constexpr size_t kBytes = 32 << 20;  // more than the kernel's buffers take
  RawClient client(port());
  client.Send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  Response answer;
  answer.body = std::string(kBytes, 'x');
  answer.held = std::make_shared<ByteBudget::Lease>(options.bodies);
  ASSERT_TRUE(answer.held->Resize(kBytes));
  Held()->Send(std::move(answer));
  EXPECT_EQ(options.bodies->held_bytes(), kBytes);
  EXPECT_EQ(client.ReadResponse().body.size(), kBytes);
  client.Send("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");  // the answer before it is over
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(options.bodies->held_bytes(), 0u);
}

TEST_F(ServerTest, ClientThatReadsNothingIsDropped) {
  ServerOptions options;
  options.write_timeout = std::chrono::milliseconds(50);
  StartServer(options);
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<Gone> gone;
  responder->Watch([&gone](Gone why) { gone.set_value(why); }, {});
  responder->StartStream({});
  responder->Write(std::string(64 << 20, 'x'));  // more than the kernel buffers
  EXPECT_EQ(Why(&gone), Gone::kStalled);
}

// Its reader is never idle for write_timeout, but would need some 5 s. Only a server without the
// bound sends it all.
TEST_F(ServerTest, AnAnswerThatIsReadTooSlowlyIsCutOff) {
  ServerOptions options;
  options.bodies = std::make_shared<ByteBudget>(256 << 20);
  options.write_timeout = std::chrono::seconds(1);
  options.answer_timeout = std::chrono::milliseconds(100);
  StartServer(options);
  constexpr size_t kBytes = 64 << 20, kPiece = 128 << 10;
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  Response answer;
  answer.body = std::string(kBytes, 'x');
  answer.held = std::make_shared<ByteBudget::Lease>(options.bodies);
  ASSERT_TRUE(answer.held->Resize(kBytes));
  Held()->Send(std::move(answer));
  EXPECT_EQ(client.ReadHead().status, 200);
  size_t read = 0;
  for (size_t piece = kPiece; piece > 0;) {
    piece = client.Skip(kPiece);
    read += piece;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(read, kBytes);
  server_->Stop(std::chrono::milliseconds(0));  // its threads have left the connection
  server_.reset();
  EXPECT_EQ(options.bodies->held_bytes(), 0u);
}

TEST_F(ServerTest, ConnectionsOverTheLimitGet429) {
  ServerOptions options;
  options.connections_max = 1;
  StartServer(options);
  RawClient first(port());
  first.Send(MakeRequest("GET", "/livez"));
  EXPECT_EQ(first.ReadResponse().status, 200);
  RawClient second(port());
  const Response refused = second.ReadResponse();
  EXPECT_EQ(refused.status, 429);  // saturated
  EXPECT_EQ(FindHeader(refused.headers, "Retry-After"), "1");
  EXPECT_EQ(FindHeader(refused.headers, "X-Request-Id").substr(0, 4), "req-");
  EXPECT_NE(refused.body.find("the limit is 1"), std::string::npos) << refused.body;
  EXPECT_EQ(server_->stats().refused, 1u);
}

TEST_F(ServerTest, WithoutADescriptorConnectionsGet503AndThoseThatAreOpenGoOn) {
  StartServer();
  RawClient first(port());
  first.Send(MakeRequest("GET", "/livez"));
  EXPECT_EQ(first.ReadResponse().status, 200);
  const int late = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(late, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string told;
  {
    const engine::NoDescriptorsLeft none;
    ASSERT_EQ(::connect(late, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    char bytes[4096];
    for (ssize_t size = 0; (size = ::recv(late, bytes, sizeof bytes, 0)) > 0;) {
      told.append(bytes, static_cast<size_t>(size));
    }
    first.Send(MakeRequest("GET", "/livez"));
    EXPECT_EQ(first.ReadResponse().status, 200);
  }
  ::close(late);
  EXPECT_EQ(told.find("HTTP/1.1 503 "), 0u) << told;
  EXPECT_NE(told.find("Retry-After: 1"), std::string::npos) << told;
  EXPECT_NE(told.find("no file descriptor left"), std::string::npos) << told;
  EXPECT_GE(server_->stats().refused, 1u);
  // The server may have looked just before there were descriptors again.
  const auto until = std::chrono::steady_clock::now() + kLong;
  int status = 0;
  while (status != 200 && std::chrono::steady_clock::now() < until) {
    RawClient next(port());
    next.Send(MakeRequest("GET", "/livez"));
    status = next.ReadResponse().status;
  }
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace skein::services::http
