#include "services/http/message.h"

#include <gtest/gtest.h>

#include "services/http/error.h"
#include "services/http/routes.h"

namespace skein::services::http {
namespace {

TEST(ParseTargetTest, SplitsAndDecodes) {
  std::string path, query;
  ASSERT_TRUE(ParseTarget("/v1/models/org%2Fname?x=1&y=%20", &path, &query));
  EXPECT_EQ(path, "/v1/models/org/name");
  EXPECT_EQ(query, "x=1&y=%20");
  ASSERT_TRUE(ParseTarget("http://host:80/livez", &path, &query));
  EXPECT_EQ(path, "/livez");
  EXPECT_EQ(query, "");
  ASSERT_TRUE(ParseTarget("http://host", &path, &query));
  EXPECT_EQ(path, "/");
  for (const char* bad : {"", "livez", "/%", "/%2", "/%zz", "/%00", "/a#b", "ftp://x/"}) {
    EXPECT_FALSE(ParseTarget(bad, &path, &query)) << bad;
  }
}

TEST(ErrorTest, JsonStringIsAlwaysValidUtf8) {
  EXPECT_EQ(JsonString("a\"\\\n\x01\x7F"), "\"a\\\"\\\\\\n\\u0001\\u007f\"");
  EXPECT_EQ(JsonString("é€😀"), "\"é€😀\"");
  EXPECT_EQ(JsonString("a\xFF\xC3"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonString("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(ErrorTest, Body) {
  EXPECT_EQ(ErrorBody(400, "m", "p", "c"),
            R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":"c"}})");
  EXPECT_EQ(ErrorBody(503, "m"),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
}

TEST(MessageTest, HeadersCannotBeInjected) {
  Response response;
  response.headers = {{"X-Request-Id", "a\r\nEvil: 1"}, {"X-Ok", "b"}};
  const std::string head = SerializeHead(response, Framing::kLength, true);
  EXPECT_EQ(head.find("Evil"), std::string::npos);
  EXPECT_NE(head.find("X-Ok: b\r\n"), std::string::npos);
}

class Recorder : public Responder {
 public:
  void Send(Response response) override { sent = std::move(response); }
  void StartStream(Response) override {}
  bool Write(std::string) override { return true; }
  void Finish() override {}
  void Abort() override {}
  void Watch(std::function<void()>, std::function<void()>) override {}
  Response sent;
};

Response Serve(const Routes& routes, std::string method, std::string path) {
  auto recorder = std::make_shared<Recorder>();
  Request request;
  request.method = std::move(method);
  request.path = std::move(path);
  routes.Serve(std::move(request), recorder);
  return recorder->sent;
}

TEST(RoutesTest, LongestPrefixMethodsAndAllow) {
  Routes routes;
  const auto page = [](std::string text) {
    return [text](const Request&) {
      Response response;
      response.body = text;
      return response;
    };
  };
  routes.AddPage("/v1/models", page("list"));
  routes.AddPage("/v1/models/*", page("one"));
  routes.AddPage("/v1/*", page("any"));
  EXPECT_EQ(Serve(routes, "GET", "/v1/models").body, "list");
  EXPECT_EQ(Serve(routes, "HEAD", "/v1/models").body, "list");
  EXPECT_EQ(Serve(routes, "GET", "/v1/models/a/b").body, "one");
  EXPECT_EQ(Serve(routes, "GET", "/v1/x").body, "any");
  EXPECT_EQ(Serve(routes, "GET", "/v2").status, 404);
  const Response refused = Serve(routes, "POST", "/v1/models");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(FindHeader(refused.headers, "allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(Serve(routes, "OPTIONS", "/v1/models").status, 204);
}

}  // namespace
}  // namespace skein::services::http
