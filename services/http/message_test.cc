#include "services/http/message.h"

#include <gtest/gtest.h>

#include "services/http/cors.h"
#include "services/http/error.h"
#include "services/http/request_id.h"
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
  const std::string head = SerializeHead(response, Framing::kLength, true, 784111777);
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
  void Watch(std::function<void(Gone)>, std::function<void()>) override {}
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

TEST(RoutesTest, OneSegmentInTheMiddle) {
  Routes routes;
  const auto page = [](std::string text) {
    return [text](const Request&) { return Response{.body = text}; };
  };
  routes.AddPage("/files", page("all"));
  routes.AddPage("/files/*", page("one"));
  routes.AddPage("/files/*/content", page("content"));
  EXPECT_EQ(Serve(routes, "GET", "/files").body, "all");
  EXPECT_EQ(Serve(routes, "GET", "/files/a").body, "one");
  EXPECT_EQ(Serve(routes, "GET", "/files/a/content").body, "content");
  EXPECT_EQ(Serve(routes, "GET", "/files/a/b/content").body, "one");
  EXPECT_EQ(Serve(routes, "GET", "/files//content").body, "one");
  EXPECT_EQ(Serve(routes, "GET", "/files/").status, 404);
  EXPECT_EQ(routes.PatternOf("/files/a/content"), "/files/*/content");
  EXPECT_EQ(routes.All().size(), 3u);
}

TEST(QueryTest, FieldsAreDecodedInOrder) {
  std::vector<std::pair<std::string, std::string>> fields;
  ASSERT_TRUE(ParseQuery("a=1&&b=two+words%21&c&a=", &fields));
  const std::vector<std::pair<std::string, std::string>> want = {
      {"a", "1"}, {"b", "two words!"}, {"c", ""}, {"a", ""}};
  EXPECT_EQ(fields, want);
  EXPECT_TRUE(ParseQuery("", &fields));
  EXPECT_TRUE(fields.empty());
  for (const char* bad : {"a=%", "a=%zz", "%00=1"}) EXPECT_FALSE(ParseQuery(bad, &fields)) << bad;
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

TEST(MessageTest, AStatusThatIsSentHasItsName) {
  EXPECT_EQ(Reason(200), "OK");
  EXPECT_EQ(Reason(302), "Found");
  EXPECT_EQ(Reason(429), "Too Many Requests");
}

TEST(MessageTest, NoContentHasNoLengthAndEveryHeadADate) {
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  Response response;
  response.status = 204;
  const std::string head = SerializeHead(response, Framing::kLength, true, 784111777);
  EXPECT_EQ(head.find("Content-Length"), std::string::npos) << head;
  EXPECT_NE(head.find("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), std::string::npos) << head;
}

TEST(RequestIdTest, TheClientsNameIfItIsPlainElseOneMadeUp) {
  const std::string long_name(129, 'x');
  const std::vector<std::pair<std::vector<Header>, std::string>> cases = {
      {{{"X-Request-Id", "a-1"}}, "a-1"},
      {{{"x-correlation-id", "b-2"}}, "b-2"},
      {{{"X-Correlation-ID", "b-2"}, {"X-Request-Id", "a-1"}}, "a-1"},
      {{{"X-Correlation-ID", "b-2"}, {"X-Request-Id", "a b"}}, "b-2"},
      {{{"X-Request-Id", long_name}}, ""},
      {{{"X-Request-Id", "\xc3\xa9"}}, ""},
      {{}, ""},
  };
  for (const auto& [headers, expected] : cases) {
    const std::string id = RequestIdOf(headers);
    if (!expected.empty()) {
      EXPECT_EQ(id, expected);
    } else {
      EXPECT_EQ(id.substr(0, 4), "req-");
      EXPECT_EQ(id.size(), 36u);
    }
  }
  EXPECT_NE(RequestIdOf({}), RequestIdOf({}));
}

Request From(std::string origin, std::string method = "POST") {
  Request request;
  request.method = std::move(method);
  request.headers = {{"Origin", std::move(origin)},
                     {"Access-Control-Request-Method", "POST"},
                     {"Access-Control-Request-Headers", "authorization,content-type"}};
  return request;
}

TEST(CorsTest, AnyOriginIsAnsweredWithAStar) {
  const Cors cors = Cors::Create({"*"}, "X-Request-Id").value();
  Response response;
  cors.AddHeaders(From("https://a.example"), &response);
  EXPECT_EQ(FindHeader(response.headers, "Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(FindHeader(response.headers, "Access-Control-Expose-Headers"), "X-Request-Id");
  EXPECT_EQ(FindHeader(response.headers, "Vary"), "");
  Response plain;
  cors.AddHeaders(Request(), &plain);
  EXPECT_TRUE(plain.headers.empty());
}

TEST(CorsTest, NamedOriginsOnlyAndTheirPorts) {
  const Cors cors = Cors::Create({"https://a.example", "http://localhost:*"}, "").value();
  const auto allowed = [&cors](const char* origin) {
    Response response;
    cors.AddHeaders(From(origin), &response);
    EXPECT_EQ(FindHeader(response.headers, "Vary"), "Origin");
    return FindHeader(response.headers, "Access-Control-Allow-Origin") == origin;
  };
  for (const char* origin : {"https://a.example", "http://localhost", "http://localhost:3000"}) {
    EXPECT_TRUE(allowed(origin)) << origin;
  }
  for (const char* origin : {"http://a.example", "https://a.example:8443", "https://a.example.evil",
                             "https://xa.example", "http://localhost.evil",
                             "http://localhost:80.evil", "http://localhost:", "null"}) {
    EXPECT_FALSE(allowed(origin)) << origin;
  }
  EXPECT_EQ(cors.Preflight(From("http://evil"), "POST").status, 403);
}

TEST(CorsTest, PreflightAllowsTheHeadersThatAreAskedFor) {
  const Cors cors = Cors::Create({"*"}, "").value();
  const Request request = From("https://a.example", "OPTIONS");
  ASSERT_TRUE(Cors::IsPreflight(request));
  EXPECT_FALSE(Cors::IsPreflight(From("https://a.example", "GET")));
  const Response response = cors.Preflight(request, "POST, OPTIONS");
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(FindHeader(response.headers, "Access-Control-Allow-Methods"), "POST, OPTIONS");
  EXPECT_EQ(FindHeader(response.headers, "Access-Control-Allow-Headers"),
            "authorization,content-type");
  EXPECT_EQ(FindHeader(cors.Preflight(request, "").headers, "Access-Control-Allow-Methods"),
            "POST");
}

TEST(CorsTest, WhatIsNoOriginIsNamed) {
  for (const char* bad : {"a.example", "https://", "https://a.example/", "https://a,https://b"}) {
    const auto cors = Cors::Create({bad}, "");
    EXPECT_NE(cors.status().message().find(bad), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace skein::services::http
