// What a server answers: pages, methods, keep-alive, streams, and what every answer has.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/http/testing/server_fixture.h"

namespace skein::services::http {
namespace {

using testing::Fetch;
using testing::MakeRequest;
using testing::RawClient;
using testing::ServerTest;

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

TEST_F(ServerTest, UnansweredRequestGets500) {
  StartServer();
  EXPECT_EQ(Fetch(port(), "GET", "/forget").status, 500);
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
