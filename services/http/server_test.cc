#include "services/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "engine/host/testing/no_descriptors_left.h"
#include "services/http/admin.h"
#include "services/http/testing/raw_client.h"

namespace skein::services::http {
namespace {

using testing::Fetch;
using testing::MakeRequest;
using testing::RawClient;

constexpr auto kLong = std::chrono::seconds(30);

Gone Why(std::promise<Gone>* gone) {
  auto future = gone->get_future();
  EXPECT_EQ(future.wait_for(kLong), std::future_status::ready);
  return future.get();
}

// A server with an echo page, probes, and /hold, whose responders the test answers itself.
class ServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options = {}) {
    routes_.Add("POST", "/echo", [](Request request, std::shared_ptr<Responder> responder) {
      Response response;
      response.body = request.body;
      responder->Send(std::move(response));
    });
    routes_.Add("GET", "/hold", [this](Request, std::shared_ptr<Responder> responder) {
      held_.set_value(std::move(responder));
    });
    routes_.Add("GET", "/forget", [](Request, std::shared_ptr<Responder>) {});
    AddAdminPages({.service = "test",
                   .version = "1.2.3",
                   .ready = [] { return absl::UnavailableError("no model"); },
                   .metrics = [] { return std::string("x 1\n"); }},
                  &routes_);
    auto server = Server::Start(options, [this](Request request, auto responder) {
      routes_.Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  // The responder of the current /hold request.
  std::shared_ptr<Responder> Held() {
    auto future = held_.get_future();
    EXPECT_EQ(future.wait_for(kLong), std::future_status::ready);
    return future.get();
  }
  uint16_t port() { return server_->port(); }

  Routes routes_;
  std::promise<std::shared_ptr<Responder>> held_;
  std::unique_ptr<Server> server_;  // last: its threads use the above
};

TEST_F(ServerTest, PagesKeepAliveAndHead) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("POST", "/echo", "hello"));
  Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "hello");
  EXPECT_EQ(FindHeader(response.headers, "Connection"), "keep-alive");
  client.Send(MakeRequest("HEAD", "/livez"));
  response = client.ReadResponse(true);
  EXPECT_EQ(FindHeader(response.headers, "Content-Length"), "3");
  client.Send(MakeRequest("GET", "/readyz"));
  response = client.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("no model"), std::string::npos);
  client.Send(MakeRequest("GET", "/metrics", {}, {{"Connection", "close"}}));
  response = client.ReadResponse();
  EXPECT_EQ(response.body, "x 1\n");
  EXPECT_EQ(FindHeader(response.headers, "Connection"), "close");
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(Fetch(port(), "GET", "/nothing").status, 404);
  EXPECT_EQ(Fetch(port(), "PUT", "/echo", "x").status, 405);
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  StartServer();
  RawClient client(port());
  std::string all;
  for (int i = 0; i < 500; ++i) all += MakeRequest("POST", "/echo", "body " + std::to_string(i));
  std::thread sender([&] { client.Send(all); });
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(client.ReadResponse().body, "body " + std::to_string(i));
  }
  sender.join();
}

TEST_F(ServerTest, RequestMayArriveByteByByteAndChunked) {
  StartServer();
  RawClient client(port());
  const std::string text =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n"
      "0\r\n\r\n";
  for (char c : text) ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  EXPECT_EQ(client.ReadResponse().body, "abcdefg");
}

TEST_F(ServerTest, ExpectContinue) {
  StartServer();
  RawClient client(port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadHead().status, 100);
  client.Send("ok");
  EXPECT_EQ(client.ReadResponse().body, "ok");
}

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

TEST_F(ServerTest, StreamsChunks) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  Response head;
  head.content_type = "text/event-stream";
  responder->StartStream(head);
  EXPECT_EQ(client.ReadHead().content_type, "text/event-stream");
  std::string chunk;
  for (const char* piece : {"data: 1\n\n", "data: 2\n\n"}) {
    EXPECT_TRUE(responder->Write(piece));
    ASSERT_TRUE(client.ReadChunk(&chunk));
    EXPECT_EQ(chunk, piece);
  }
  responder->Finish();
  ASSERT_TRUE(client.ReadChunk(&chunk));
  EXPECT_EQ(chunk, "");
  client.Send(MakeRequest("POST", "/echo", "still here"));
  EXPECT_EQ(client.ReadResponse().body, "still here");
}

class Http10Test : public ServerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Http10Test, AStreamEndsWithTheConnection) {
  StartServer();
  RawClient client(port());
  client.Send(std::string("GET /hold HTTP/1.0\r\n") + GetParam() + "\r\n");
  auto responder = Held();
  responder->StartStream({});
  responder->Write("abc");
  responder->Write("def");
  responder->Finish();
  const Response head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(FindHeader(head.headers, "Connection"), "close");
  EXPECT_EQ(client.ReadAll(), "abcdef");
  EXPECT_TRUE(client.AtEnd()) << "before any timeout";
}

// Only the end of the connection marks the end of the stream, whatever the client requests.
INSTANTIATE_TEST_SUITE_P(WhatTheClientWants, Http10Test,
                         ::testing::Values("", "Connection: close\r\n",
                                           "Connection: keep-alive\r\n"));

TEST_F(ServerTest, Http10KeepAliveKeepsTheConnectionOfWholeAnswers) {
  StartServer();
  RawClient client(port());
  for (int i = 0; i < 2; ++i) {
    client.Send("GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const Response response = client.ReadResponse();
    EXPECT_EQ(response.body, "ok\n");
    EXPECT_EQ(FindHeader(response.headers, "Connection"), "keep-alive");
  }
}

TEST_F(ServerTest, HeadIsGetWithoutItsBody) {
  StartServer();
  RawClient client(port());
  for (const char* path :
       {"/livez", "/readyz", "/health", "/ping", "/version", "/metrics", "/no"}) {
    client.Send(MakeRequest("GET", path));
    const Response get = client.ReadResponse();
    client.Send(MakeRequest("HEAD", path));
    const Response head = client.ReadResponse(true);
    EXPECT_EQ(head.status, get.status) << path;
    EXPECT_EQ(head.content_type, get.content_type) << path;
    if (get.status == 404) continue;  // its text names the method
    EXPECT_EQ(FindHeader(head.headers, "Content-Length"), std::to_string(get.body.size())) << path;
  }
  client.Send(MakeRequest("HEAD", "/echo"));
  EXPECT_EQ(client.ReadResponse(true).status, 405);
  client.Send(MakeRequest("GET", "/livez"));  // no body came before it
  EXPECT_EQ(client.ReadResponse().body, "ok\n");
}

TEST_F(ServerTest, OptionsAnswers204WithoutALength) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("OPTIONS", "/echo"));
  const Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(FindHeader(response.headers, "Content-Length"), "");
  EXPECT_EQ(FindHeader(response.headers, "Allow"), "POST, OPTIONS");
}

TEST_F(ServerTest, AMethodThatIsNotServedIsToldWhichIs) {
  StartServer();
  const Response response = Fetch(port(), "GET", "/echo");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(FindHeader(response.headers, "Allow"), "POST, OPTIONS");
  EXPECT_NE(response.body.find("Method GET is not allowed here; use POST."), std::string::npos)
      << response.body;
}

TEST_F(ServerTest, EveryAnswerHasItsDateAndTheRequestsId) {
  ServerOptions options;
  options.body_bytes_max = 100;
  StartServer(options);
  const std::string named = "Host: a\r\nX-Request-Id: mine\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET /livez HTTP/1.1\r\n" + named + "\r\n", 200},
      {"GET /no HTTP/1.1\r\n" + named + "\r\n", 404},
      {"PUT /echo HTTP/1.1\r\n" + named + "\r\n", 405},
      {"OPTIONS /echo HTTP/1.1\r\n" + named + "\r\n", 204},
      {"GET /forget HTTP/1.1\r\n" + named + "\r\n", 500},
      {"POST /echo HTTP/1.1\r\n" + named + "Content-Length: 101\r\n\r\n", 413},
      {"GET /%0 HTTP/1.1\r\n" + named + "\r\n", 400},
      {"GET /livez HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n", 400},
  };
  for (const auto& [text, status] : cases) {
    RawClient client(port());
    client.Send(text);
    const Response response = client.ReadResponse();
    EXPECT_EQ(response.status, status) << text;
    EXPECT_EQ(FindHeader(response.headers, "X-Request-Id"), "mine") << text;
    EXPECT_EQ(FindHeader(response.headers, "Date").size(), 29u) << text;
  }
}

TEST_F(ServerTest, TheLastWordSeesEveryAnswer) {
  struct Seen {
    std::string method, path, id;
    int status;
    std::string code;
  };
  std::mutex mutex;
  std::vector<Seen> seen;
  ServerOptions options;
  options.header_bytes_max = 1024;
  options.complete = [&](const Request& request, Response* response) {
    response->headers.push_back({"X-Last", "word"});
    std::lock_guard<std::mutex> lock(mutex);
    seen.push_back(
        {request.method, request.path, request.id, response->status, response->error_code});
  };
  StartServer(options);
  for (const std::string& text :
       {MakeRequest("GET", "/livez", {}, {{"X-Request-Id", "a"}}),
        MakeRequest("GET", "/no", {}, {{"X-Request-Id", "b"}}),
        MakeRequest("GET", "/livez", {}, {{"X-Request-Id", "c"}, {"X", std::string(2000, 'x')}}),
        std::string("nonsense\r\n\r\n")}) {
    RawClient client(port());
    client.Send(text);
    EXPECT_EQ(FindHeader(client.ReadResponse().headers, "X-Last"), "word");
  }
  std::lock_guard<std::mutex> lock(mutex);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].id, "a");
  EXPECT_EQ(seen[0].code, "");
  EXPECT_EQ(seen[1].path, "/no");
  EXPECT_EQ(seen[1].code, "unknown_url");
  EXPECT_EQ(seen[2].status, 431);
  EXPECT_EQ(seen[2].path, "/livez");
  EXPECT_EQ(seen[3].status, 400);
  EXPECT_EQ(seen[3].code, "bad_request");
}

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
// ---- bodies that a sink takes ----

// Collects what it takes; after each piece it is full, until the test makes room.
class TestSink : public BodySink {
 public:
  explicit TestSink(bool fills) : fills_(fills) {}
  ~TestSink() override { destroyed.set_value(); }

  void Start(std::function<void()> room) override { room_ = std::move(room); }
  bool Take(std::string_view bytes) override {
    std::lock_guard lock(mutex_);
    taken_.append(bytes);
    changed_.notify_all();
    return !fills_;
  }

  void MakeRoom() { room_(); }
  // Waits until at least so many bytes were taken.
  size_t AwaitTaken(size_t bytes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return taken_.size() >= bytes; }));
    return taken_.size();
  }
  std::string taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }

  std::promise<void> destroyed;

 private:
  const bool fills_;
  std::function<void()> room_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string taken_;  // guarded by mutex_
};

class SinkTest : public ServerTest {
 protected:
  static constexpr size_t kSunkBytesMax = 1 << 20;

  // POST /sink gives its body to the sink that the test has made; /no refuses.
  void StartSinkServer(ServerOptions options = {}) {
    options.body_bytes_max = 100;
    options.planned_bytes_max = kSunkBytesMax;
    options.plan_body = [this](const Request& head) -> BodyPlan {
      EXPECT_EQ(head.remote, "127.0.0.1");
      if (head.path == "/no") return {.refusal = Response{.status = 401, .body = "no"}};
      if (head.path != "/sink") return {.bytes_max = 100};
      return {.bytes_max = kSunkBytesMax, .sink = std::exchange(sink_, nullptr)};
    };
    routes_.Add("POST", "/sink", [](Request request, std::shared_ptr<Responder> responder) {
      EXPECT_TRUE(request.body.empty());
      auto* sink = static_cast<TestSink*>(request.sink.get());
      ASSERT_NE(sink, nullptr);
      responder->Send({.body = std::to_string(sink->taken().size())});
    });
    StartServer(options);
  }

  std::shared_ptr<TestSink> sink_ = std::make_shared<TestSink>(false);
};

TEST_F(SinkTest, ItTakesALongBodyAndTheConnectionGoesOn) {
  StartSinkServer();
  RawClient client(port());
  client.Send(MakeRequest("POST", "/sink", std::string(500'000, 'x')));
  EXPECT_EQ(client.ReadResponse().body, "500000");
  client.Send(MakeRequest("POST", "/echo", "short"));
  EXPECT_EQ(client.ReadResponse().body, "short");
  client.Send(MakeRequest("POST", "/echo", std::string(101, 'x')));
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(SinkTest, WhileItIsFullNothingIsRead) {
  const std::shared_ptr<TestSink> sink = sink_ = std::make_shared<TestSink>(true);
  StartSinkServer();
  RawClient client(port());
  const std::string body(900'000, 'x');
  std::thread sender([&] { client.Send(MakeRequest("POST", "/sink", body)); });
  size_t taken = 0;
  while (taken < body.size()) {
    const size_t now = sink->AwaitTaken(taken + 1);
    EXPECT_LE(now - taken, size_t{256} << 10);  // what one round of reading may hold
    taken = now;
    sink->MakeRoom();
  }
  sender.join();
  EXPECT_EQ(client.ReadResponse().body, "900000");
  EXPECT_EQ(sink->taken(), body);
}

TEST_F(SinkTest, ItIsDroppedWhenTheClientLeaves) {
  auto destroyed = sink_->destroyed.get_future();
  TestSink* const sink = sink_.get();
  StartSinkServer();
  RawClient client(port());
  client.Send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
  sink->AwaitTaken(3);
  client.Close();
  EXPECT_EQ(destroyed.wait_for(kLong), std::future_status::ready);
}

TEST_F(SinkTest, LimitsHoldHoweverTheBodyComes) {
  StartSinkServer();
  const std::string too_long = std::to_string(kSunkBytesMax + 1);
  RawClient client(port());
  client.Send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: " + too_long + "\r\n\r\n");
  EXPECT_EQ(client.ReadResponse().status, 413);
  sink_ = std::make_shared<TestSink>(false);
  RawClient chunked(port());
  chunked.Send("POST /sink HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::thread sender([&] {
    for (size_t sent = 0; sent <= kSunkBytesMax; sent += 1 << 16) {
      chunked.Send("10000\r\n" + std::string(1 << 16, 'x') + "\r\n");
    }
  });
  EXPECT_EQ(chunked.ReadResponse().status, 413);
  sender.join();
  RawClient echo(port());
  echo.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
            std::string(101, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(echo.ReadResponse().status, 413);
  // The limit that is named is the one of this request, not the largest that any may have.
  RawClient named(port());
  named.Send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + too_long + "\r\n\r\n");
  const Response refused = named.ReadResponse();
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find(" 100 bytes"), std::string::npos) << refused.body;
}

TEST_F(SinkTest, ARefusalComesBeforeTheBody) {
  StartSinkServer();
  RawClient client(port());
  client.Send("POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
  const Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.body, "no");
}

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

TEST_F(ServerTest, UnansweredRequestGets500) {
  StartServer();
  EXPECT_EQ(Fetch(port(), "GET", "/forget").status, 500);
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

TEST_F(ServerTest, StopLetsAnswersEnd) {
  StartServer();
  RawClient idle(port()), busy(port());
  busy.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  responder->StartStream({});
  std::thread stopper([&] { server_->Stop(kLong); });
  const Response told = idle.ReadResponse();  // so the stop has begun
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(FindHeader(told.headers, "Retry-After"), "1");
  EXPECT_EQ(FindHeader(told.headers, "Connection"), "close");
  EXPECT_TRUE(idle.AtEnd());
  responder->Write("last words");
  responder->Finish();
  EXPECT_EQ(busy.ReadResponse().body, "last words");
  busy.Close();
  stopper.join();
  EXPECT_FALSE(RawClient(port()).connected());
}

TEST_F(ServerTest, ADrainClosesWhatIsIdleAndTheOthersAfterTheirAnswers) {
  StartServer();
  RawClient opened(port()), idle(port()), busy(port());
  idle.Send(MakeRequest("POST", "/echo", "a"));
  EXPECT_EQ(FindHeader(idle.ReadResponse().headers, "Connection"), "keep-alive");
  busy.Send(MakeRequest("GET", "/hold"));
  const auto responder = Held();
  server_->BeginDrain();
  EXPECT_TRUE(idle.AtEnd());
  RawClient probe(port());
  for (RawClient* client : {&opened, &probe, &busy}) {
    if (client != &busy) client->Send(MakeRequest("GET", "/livez"));
    if (client == &busy) responder->Send({});
    const Response response = client->ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(FindHeader(response.headers, "Connection"), "close");
    EXPECT_TRUE(client->AtEnd());
  }
}

TEST_F(ServerTest, ConnectionsStayOpenAgainAfterADrain) {
  StartServer();
  RawClient before(port());
  server_->BeginDrain();
  before.Send(MakeRequest("GET", "/livez"));
  EXPECT_EQ(FindHeader(before.ReadResponse().headers, "Connection"), "close");
  server_->EndDrain();
  RawClient after(port());
  for (int i = 0; i < 2; ++i) {
    after.Send(MakeRequest("GET", "/livez"));
    EXPECT_EQ(FindHeader(after.ReadResponse().headers, "Connection"), "keep-alive");
  }
}

TEST_F(ServerTest, StopEndsWhatDoesNotEnd) {
  StartServer();
  RawClient client(port());
  client.Send(MakeRequest("GET", "/hold"));
  auto responder = Held();
  std::promise<Gone> gone;
  responder->Watch([&gone](Gone why) { gone.set_value(why); }, {});
  server_->Stop(std::chrono::milliseconds(10));
  EXPECT_EQ(Why(&gone), Gone::kStopped);
  EXPECT_TRUE(client.AtEnd());
}

TEST(ServerStartTest, PortInUseIsNamed) {
  auto first = Server::Start({}, [](Request, auto) {});
  ASSERT_TRUE(first.ok());
  ServerOptions options;
  options.port = (*first)->port();
  const auto second = Server::Start(options, [](Request, auto) {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().ToString().find(std::to_string(options.port)), std::string::npos);
}

}  // namespace
}  // namespace skein::services::http
