// What all answers have, and who may ask: log lines, reasons, origins, keys, readiness.
#include "services/router/api/edge.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "services/base/file.h"
#include "services/log/log.h"
#include "services/log/log_limit.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

using http::FindHeader;
using http::testing::Fetch;

class EdgeTest : public RouterTest {
 protected:
  void Start(scheduler::RouterConfig core = {}, http::ServerOptions http_options = {}) {
    StartRouter(
        [this](const v1::RequestSpec& spec) { return script_ ? script_(spec) : Says("abc"); }, core,
        http_options);
  }

  http::Response Get(const std::string& path, const std::vector<http::Header>& headers = {}) {
    return Fetch(server_->port(), "GET", path, {}, headers);
  }

  static Json Completion(bool stream = false) {
    return {{"model", "m"}, {"prompt", "p"}, {"stream", stream}, {"max_tokens", 64}};
  }

  // What was logged since CaptureStderr.
  static std::string CapturedLog() {
    FlushLog();
    return ::testing::internal::GetCapturedStderr();
  }

  // The log's lines "request" since the last call.
  std::vector<Json> RequestLines() {
    std::vector<Json> lines;
    std::istringstream log(CapturedLog());
    for (std::string line; std::getline(log, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_discarded() && json.value("msg", "") == "request") lines.push_back(json);
    }
    return lines;
  }

  static std::string HeaderOf(const http::Response& response, const char* name) {
    return std::string(FindHeader(response.headers, name));
  }

  FakeCluster::ScriptFn script_;
};

TEST_F(EdgeTest, EveryRefusalHasALineWithItsIdStatusAndReason) {
  Start();
  const std::vector<http::Header> named = {{"X-Request-Id", "r-1"}};
  struct Case {
    std::string method, path, body;
    int status;
    std::string code, param;
  };
  const std::vector<Case> cases = {
      {"POST", "/v1/completions", R"({"model":"m","prompt":"p","temperature":9})", 400, "*",
       "temperature"},
      {"POST", "/v1/completions", R"({"model":"x","prompt":"p"})", 404, "model_not_found", "model"},
      {"POST", "/v1/completions", "{", 400, "*", ""},
      {"POST", "/tokenize", R"({"model":"x","prompt":"p"})", 404, "model_not_found", "model"},
      {"POST", "/detokenize", R"({"tokens":"p"})", 400, "*", "tokens"},
      {"GET", "/v1/completions", "", 405, "method_not_allowed", ""},
      {"GET", "/nowhere", "", 404, "unknown_url", ""},
      {"GET", "/v1/models/x", "", 404, "model_not_found", "model"},
  };
  for (const Case& c : cases) {
    ::testing::internal::CaptureStderr();
    const http::Response response = Fetch(server_->port(), c.method, c.path, c.body, named);
    EXPECT_EQ(response.status, c.status) << c.path << c.body;
    EXPECT_EQ(HeaderOf(response, "X-Request-Id"), "r-1") << c.path;
    const std::vector<Json> lines = RequestLines();
    ASSERT_EQ(lines.size(), 1u) << c.path << c.body;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(lines[0]["request_id"], "r-1");
    EXPECT_EQ(lines[0]["method"], c.method);
    EXPECT_EQ(lines[0]["path"], c.path);
    EXPECT_EQ(lines[0]["status"], c.status);
    EXPECT_EQ(lines[0]["outcome"], "refused");
    EXPECT_EQ(lines[0]["error"], error["message"]);
    if (c.code != "*") {
      EXPECT_EQ(lines[0]["code"], c.code);
    }
    EXPECT_EQ(lines[0]["param"], c.param) << c.path << c.body;
  }
}

TEST_F(EdgeTest, WhatTheServerRefusesIsLoggedAndCountedToo) {
  http::ServerOptions options;
  options.header_bytes_max = 1024;
  options.body_bytes_max = 100;
  Start({}, options);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Fetch(server_->port(), "POST", "/v1/completions", std::string(200, 'x')).status, 413);
  EXPECT_EQ(Get("/v1/models", {{"X", std::string(2000, 'x')}}).status, 431);
  EXPECT_EQ(
      Fetch(server_->port(), "POST", "/v1/completions", "{}", {{"Content-Type", "text/x"}}).status,
      415);
  const std::vector<Json> lines = RequestLines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["code"], "request_too_large");
  EXPECT_EQ(lines[0]["path"], "/v1/completions");
  EXPECT_EQ(lines[1]["code"], "header_too_large");
  EXPECT_EQ(lines[2]["code"], "unsupported_media_type");
  const std::string text = metrics_.Render();
  for (const char* line : {R"(skein_router_answers_total{path="/v1/completions",status="413"} 1)",
                           R"(skein_router_answers_total{path="/v1/models",status="431"} 1)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// A flood of bad requests is counted whole, and does not fill the disk.
TEST_F(EdgeTest, AFloodOfRefusalsHasFewLinesAndSaysHowManyWereLeftOut) {
  constexpr int kFlood = 300;
  edge_options_.api_key_file = std::string(std::getenv("TEST_TMPDIR")) + "/flood_keys";
  ASSERT_TRUE(WriteFile(edge_options_.api_key_file, "sk-right\n").ok());
  // No instances: each that has a key is refused as well, by another part of the router.
  script_ = [](const v1::RequestSpec&) {
    Script script;
    script.plan = absl::ResourceExhaustedError("full");
    return script;
  };
  Start();
  ::testing::internal::CaptureStderr();
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < kFlood; ++i) {
    EXPECT_EQ(Get("/v1/models").status, 401);
    EXPECT_EQ(Post("/v1/completions", Completion(), {{"Authorization", "Bearer sk-right"}}).status,
              429);
  }
  const int64_t seconds = 2 + std::chrono::duration_cast<std::chrono::seconds>(
                                  std::chrono::steady_clock::now() - before)
                                  .count();
  LogLeftOut(/*at_end=*/true);
  std::map<int, int64_t> lines, left_out;
  std::istringstream log(CapturedLog());
  for (std::string line; std::getline(log, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.value("msg", "") == "request") ++lines[json["status"].get<int>()];
    if (!json.contains("kind")) continue;
    for (const int status : {401, 429}) {
      const bool it =
          json["kind"].get<std::string>().find(std::to_string(status)) != std::string::npos;
      if (it) left_out[status] += json["lines"].get<int64_t>();
    }
  }
  for (const int status : {401, 429}) {
    EXPECT_LE(lines[status], seconds * kLimitedLinesPerSecond) << status;
    EXPECT_EQ(lines[status] + left_out[status], kFlood) << status;
  }
  const std::string text = metrics_.Render();
  for (const char* line :
       {R"(skein_router_answers_total{path="/v1/models",status="401"} 300)",
        R"(skein_router_answers_total{path="/v1/completions",status="429"} 300)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST_F(EdgeTest, UnknownUrlsAreCountedUnderOneLabel) {
  Start();
  Get("/a");
  Get("/b");
  Get("/v1/models/m");
  const std::string text = metrics_.Render();
  for (const char* line : {R"(skein_router_answers_total{path="other",status="404"} 2)",
                           R"(skein_router_answers_total{path="/v1/models/*",status="200"} 1)"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST_F(EdgeTest, ALineOfAnAnswerHasTheIdThatTheUserSaw) {
  Start();
  ::testing::internal::CaptureStderr();
  const http::Response response =
      Post("/v1/completions", Completion(),
           {{"X-Correlation-ID", "c-1"}, {"x-session-id", "s-1"}, {"x-smg-priority", "bulk"}});
  const std::vector<Json> lines = RequestLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["id"], Json::parse(response.body)["id"]);
  EXPECT_EQ(lines[0]["request_id"], "c-1");
  EXPECT_EQ(HeaderOf(response, "X-Request-Id"), "c-1");
  EXPECT_EQ(lines[0]["session"], "s-1");
  EXPECT_EQ(lines[0]["priority"], "x-smg-priority: bulk");
  EXPECT_EQ(lines[0]["outcome"], "finished");
  EXPECT_EQ(lines[0]["output_tokens"], 3);
}

TEST_F(EdgeTest, AClientThatLeftIsLoggedWithTheTokensThatCame) {
  script_ = [](const v1::RequestSpec&) {
    Script script = Says("abc");
    script.hold = true;
    return script;
  };
  Start();
  ::testing::internal::CaptureStderr();
  RawClient client(server_->port());
  client.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  std::string chunk, text;
  while (text.find("\"c\"") == std::string::npos && client.ReadChunk(&chunk)) text += chunk;
  client.Close();
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  shell_->loop().RunAndWait([] {});
  const std::vector<Json> lines = RequestLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["status"], 499);
  EXPECT_EQ(lines[0]["outcome"], "client disconnected");
  EXPECT_EQ(lines[0]["output_tokens"], 3);
}

TEST_F(EdgeTest, AReaderThatStallsIsToldApart) {
  script_ = [](const v1::RequestSpec&) {
    Script script = Says(std::string(60'000, 'x'));
    script.hold = true;
    return script;
  };
  max_positions_ = 100'000;
  http::ServerOptions options;
  options.write_timeout = std::chrono::milliseconds(50);
  Start({}, options);
  ::testing::internal::CaptureStderr();
  RawClient client(server_->port());
  Json body = Completion(true);
  body["max_tokens"] = 60'001;
  client.Send(MakeRequest("POST", "/v1/completions", body.dump()));
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  shell_->loop().RunAndWait([] {});
  const std::vector<Json> lines = RequestLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["outcome"], "dropped: the client read nothing for --write-timeout-s");
  EXPECT_GT(lines[0]["output_tokens"], 0);
}

TEST_F(EdgeTest, AnAnswerThatTheStopCutsOffIsToldApart) {
  script_ = [](const v1::RequestSpec&) {
    Script script = Says("a");
    script.hold = true;
    return script;
  };
  Start();
  ::testing::internal::CaptureStderr();
  RawClient client(server_->port());
  client.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  server_->Stop(std::chrono::milliseconds(1));
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  shell_->loop().RunAndWait([] {});
  const std::vector<Json> lines = RequestLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["outcome"], "cut off: the router stopped before the answer's end");
}

// After the drain's grace: an honest end for those that still wait, streamed or not.
TEST_F(EdgeTest, WhoStillWaitsWhenTheRouterStopsIsToldSo) {
  script_ = [](const v1::RequestSpec&) {
    Script script = Says("a");
    script.hold = true;
    return script;
  };
  Start();
  RawClient whole(server_->port()), stream(server_->port());
  whole.Send(MakeRequest("POST", "/v1/completions", Completion().dump()));
  stream.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(stream.ReadHead().status, 200);
  while (cluster_->attached() < 2) std::this_thread::yield();
  shell_->TellStop();
  const http::Response response = whole.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(HeaderOf(response, "X-Skein-Dropped-Reason"), "evicted-shutting-down");
  EXPECT_EQ(Json::parse(response.body)["error"]["code"], "draining");
  std::string chunk, text;
  while (stream.ReadChunk(&chunk) && !chunk.empty()) text += chunk;
  EXPECT_NE(text.find("\"code\":\"draining\""), std::string::npos) << text;
  EXPECT_TRUE(cluster_->AwaitEnded(2, 2));
}

TEST_F(EdgeTest, WhyARequestWasDroppedAndWhetherWorkWasThrownAway) {
  absl::Status plan, failure;
  script_ = [&](const v1::RequestSpec&) {
    Script script;
    script.plan = plan;
    script.failure = failure;
    return script;
  };
  scheduler::RouterConfig core;
  core.replan_wait_us = 1000;  // the fake orchestrator plans nothing anew
  Start(core);
  struct Case {
    absl::Status plan, failure;
    int status;
    std::string reason;
  };
  for (const Case& c : std::vector<Case>{
           {absl::ResourceExhaustedError("full"), {}, 429, "rejected-saturated"},
           {absl::UnavailableError("none"), {}, 503, "rejected-no-endpoints"},
           {absl::DeadlineExceededError("late"), {}, 504, "rejected-ttl-expired"},
           {{}, absl::DeadlineExceededError("late"), 504, "evicted-ttl-expired"},
           {{}, absl::UnavailableError("lost"), 503, "evicted-instance-lost"},
           {absl::InvalidArgumentError("large"), {}, 400, ""},
           {{}, absl::InternalError("bad"), 500, ""},
       }) {
    plan = c.plan;
    failure = c.failure;
    for (const bool stream : {false, true}) {
      const http::Response response = Post("/v1/completions", Completion(stream));
      EXPECT_EQ(response.status, c.status) << c.reason;
      EXPECT_EQ(HeaderOf(response, "X-Skein-Dropped-Reason"), c.reason);
      EXPECT_EQ(HeaderOf(response, "X-LLM-D-Request-Dropped-Reason"), c.reason);
      EXPECT_EQ(HeaderOf(response, "Retry-After").empty(), c.status != 429 && c.status != 503);
      EXPECT_NE(HeaderOf(response, "X-Request-Id"), "");
    }
  }
  api_->BeginDrain();
  const http::Response response = Post("/v1/completions", Completion());
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(HeaderOf(response, "X-Skein-Dropped-Reason"), "rejected-shutting-down");
  EXPECT_EQ(HeaderOf(response, "Retry-After"), "1");
}

TEST_F(EdgeTest, TooManyConnectionsSayWhyToo) {
  http::ServerOptions options;
  options.connections_max = 1;
  Start({}, options);
  RawClient first(server_->port());
  first.Send(MakeRequest("GET", "/livez"));
  EXPECT_EQ(first.ReadResponse().status, 200);
  const http::Response response = RawClient(server_->port()).ReadResponse();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(HeaderOf(response, "X-Skein-Dropped-Reason"), "rejected-saturated");
}

TEST_F(EdgeTest, ModelsAndProbesAreReadyOnlyWhenAModelCanAnswer) {
  Start();
  EXPECT_EQ(Json::parse(Get("/v1/models").body)["data"].size(), 1u);
  for (const char* path : {"/readyz", "/health", "/ping", "/v1/models/m"}) {
    EXPECT_EQ(Get(path).status, 200) << path;
  }
  EXPECT_EQ(Fetch(server_->port(), "POST", "/ping", "{}").status, 200);
  const auto await = [this](const std::string& words) {
    for (int i = 0; i < 3000; ++i) {
      if (Get("/readyz").body.find(words) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  cluster_->SetInstances(1, 0);
  EXPECT_TRUE(await("model 'm' has 1 prefill and 0 decode instances. Start a decode-worker"))
      << Get("/readyz").body;
  for (const char* path : {"/readyz", "/health", "/ping", "/v1/models/m", "/v1/models"}) {
    const http::Response response = Get(path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(HeaderOf(response, "Retry-After"), "1") << path;
  }
  EXPECT_EQ(HeaderOf(Get("/v1/models"), "X-Skein-Dropped-Reason"), "rejected-no-endpoints");
  EXPECT_EQ(Get("/v1/models/other").status, 404);
  EXPECT_EQ(Get("/livez").status, 200);
  cluster_->SetInstances(0, 2);
  EXPECT_TRUE(await("model 'm' has 0 prefill and 2 decode instances. Start a prefill-worker"));
  cluster_->SetInstances(1, 1);
  EXPECT_TRUE(await("ok"));
}

TEST_F(EdgeTest, AnUnknownModelIsToldTheNamesThatExist) {
  Start();
  const http::Response response = Post("/v1/completions", {{"model", "x"}, {"prompt", "p"}});
  EXPECT_NE(response.body.find("This router serves 'm'."), std::string::npos) << response.body;
}

TEST_F(EdgeTest, IdentityIsAContentEncoding) {
  Start();
  EXPECT_EQ(Post("/v1/completions", Completion(), {{"Content-Encoding", "Identity"}}).status, 200);
  const http::Response gzip = Post("/v1/completions", Completion(), {{"Content-Encoding", "gzip"}});
  EXPECT_EQ(gzip.status, 415);
  EXPECT_NE(gzip.body.find("'Content-Encoding: gzip'"), std::string::npos) << gzip.body;
}

TEST_F(EdgeTest, HeadOfEveryPage) {
  Start();
  for (const char* path : {"/v1/models", "/v1/models/m", "/v1/models/x", "/readyz", "/version"}) {
    const http::Response get = Get(path);
    const http::Response head = Fetch(server_->port(), "HEAD", path);
    EXPECT_EQ(head.status, get.status) << path;
    EXPECT_EQ(HeaderOf(head, "Content-Length"), std::to_string(get.body.size())) << path;
    EXPECT_EQ(head.body, "");
  }
  EXPECT_EQ(Fetch(server_->port(), "HEAD", "/v1/completions").status, 405);
}

// As a browser does it: a preflight, then the request, whose answer the page may read.
TEST_F(EdgeTest, APageOfAnAllowedOriginCanUseTheApi) {
  edge_options_.allowed_origins = {"https://chat.example"};
  Start();
  const std::vector<http::Header> asks = {
      {"Origin", "https://chat.example"},
      {"Access-Control-Request-Method", "POST"},
      {"Access-Control-Request-Headers", "authorization,content-type,x-stainless-os"}};
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/nowhere"}) {
    const http::Response response = Fetch(server_->port(), "OPTIONS", path, {}, asks);
    EXPECT_EQ(response.status, 204) << path;
    EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "https://chat.example");
    EXPECT_NE(HeaderOf(response, "Access-Control-Allow-Methods").find("POST"), std::string::npos);
    EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Headers"),
              "authorization,content-type,x-stainless-os");
  }
  const std::vector<http::Header> origin = {{"Origin", "https://chat.example"}};
  for (const http::Response& response :
       {Post("/v1/completions", Completion(), origin), Post("/v1/completions", {}, origin),
        Post("/v1/completions", Completion(true), origin), Get("/v1/models", origin),
        Get("/nowhere", origin), Get("/v1/completions", origin)}) {
    EXPECT_EQ(HeaderOf(response, "Access-Control-Allow-Origin"), "https://chat.example");
    EXPECT_NE(HeaderOf(response, "Access-Control-Expose-Headers").find("X-Request-Id"),
              std::string::npos);
  }
  const std::vector<http::Header> other = {{"Origin", "https://evil.example"},
                                           {"Access-Control-Request-Method", "POST"}};
  EXPECT_EQ(Fetch(server_->port(), "OPTIONS", "/v1/completions", {}, other).status, 403);
  EXPECT_EQ(HeaderOf(Get("/v1/models", other), "Access-Control-Allow-Origin"), "");
}

// A form post needs no preflight, so the router has to refuse it itself.
TEST_F(EdgeTest, APageOfAnotherSitePostsNothingWithoutAKey) {
  Start();
  const std::string form =
      "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x--\r\n";
  for (const std::vector<http::Header>& page :
       {std::vector<http::Header>{{"Origin", "https://evil.example"}},
        {{"Origin", "null"}},
        {{"Sec-Fetch-Site", "cross-site"}}}) {
    std::vector<http::Header> upload = page;
    upload.push_back({"Content-Type", "multipart/form-data; boundary=x"});
    const http::Response posted = Fetch(server_->port(), "POST", "/v1/files", form, upload);
    EXPECT_EQ(posted.status, 403) << page[0].value;
    EXPECT_NE(posted.body.find("origin_not_allowed"), std::string::npos) << posted.body;
    EXPECT_EQ(Post("/v1/completions", Completion(), page).status, 403) << page[0].value;
    EXPECT_EQ(Fetch(server_->port(), "DELETE", "/v1/files/f", {}, page).status, 403);
  }
  EXPECT_EQ(Post("/v1/completions", Completion(), {{"Origin", "http://localhost:5173"}}).status,
            200);
  EXPECT_EQ(Post("/v1/completions", Completion(), {{"Sec-Fetch-Site", "same-origin"}}).status, 200);
}

TEST_F(EdgeTest, APageWhoseNameWasMadeToResolveHereReadsNothing) {
  edge_options_.host = "127.0.0.1";
  edge_options_.allowed_hosts = {"proxy.example"};
  Start();
  const auto ask = [this](const std::string& host) {
    http::testing::RawClient client(server_->port());
    client.Send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.ReadResponse().status;
  };
  EXPECT_EQ(ask("evil.example:8000"), 403);
  for (const char* own : {"127.0.0.1:8000", "[::1]:8000", "localhost", "LOCALHOST:8000",
                          "a.localhost:1", "Proxy.example:443"}) {
    EXPECT_NE(ask(own), 403) << own;
  }
}

// Ids, names and paths of a client are in logs, which people read in terminals.
TEST_F(EdgeTest, AHostileClientForgesNoLogLine) {
  Start();
  ::testing::internal::CaptureStderr();
  const std::string forged = "x\n{\"msg\":\"request\",\"forged\":true}\r\x1b[2J\x7f\u2028";
  EXPECT_EQ(Post("/v1/completions", {{"model", forged}, {"prompt", "p"}}).status, 404);
  EXPECT_EQ(Get("/v1/%0A%7B%22forged%22:true%7D%1B%5B2J").status, 404);
  const http::Response named = Get(
      "/nowhere",
      {{"X-Request-Id", "a\x1b[2Jb"}, {"X-Session-Id", "s\x1b[2J"}, {"X-Tenant-Id", "t\x08\x08"}});
  EXPECT_EQ(HeaderOf(named, "X-Request-Id").rfind("req-", 0), 0u) << "another id is made";
  const std::string log = CapturedLog();
  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  EXPECT_EQ(log.find('\r'), std::string::npos);
  EXPECT_EQ(log.find('\x08'), std::string::npos);
  int lines = 0;
  std::istringstream text(log);
  for (std::string line; std::getline(text, line); ++lines) {
    const Json json = Json::parse(line, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << line;
    EXPECT_FALSE(json.contains("forged")) << line;
  }
  EXPECT_GE(lines, 3);
}

TEST(EdgeOptionsTest, WithoutKeysOnlyThisMachinesPagesMayAsk) {
  const auto cors = http::Cors::Create(DefaultOrigins(false), "").value();
  for (const auto& [origin, allowed] :
       {std::pair("http://localhost:5173", true), std::pair("http://127.0.0.1:8080", true),
        std::pair("http://[::1]:3000", true), std::pair("https://a.example", false),
        std::pair("http://localhost.a.example", false)}) {
    http::Request request;
    request.headers = {{"Origin", origin}};
    http::Response response;
    cors.AddHeaders(request, &response);
    EXPECT_EQ(!FindHeader(response.headers, "Access-Control-Allow-Origin").empty(), allowed)
        << origin;
  }
  EXPECT_EQ(DefaultOrigins(true), std::vector<std::string>{"*"});
}

TEST(EdgeOptionsTest, ABadOriginAndABadKeyFileAreRefused) {
  http::Routes routes;
  Metrics metrics;
  RouterMetrics router_metrics(&metrics);
  const auto bad = Edge::Create({.allowed_origins = {"a.example"}, .api_key_file = ""}, &routes,
                                &router_metrics);
  EXPECT_NE(bad.status().message().find("--allowed-origins: 'a.example'"), std::string::npos);
  const auto missing = Edge::Create({.allowed_origins = {}, .api_key_file = "/no/such/file"},
                                    &routes, &router_metrics);
  EXPECT_NE(missing.status().message().find("--api-key-file: '/no/such/file': cannot be read"),
            std::string::npos);
}

TEST_F(EdgeTest, WithAKeyFileOnlyItsKeysAreServed) {
  edge_options_.api_key_file = std::string(std::getenv("TEST_TMPDIR")) + "/edge_keys";
  ASSERT_TRUE(WriteFile(edge_options_.api_key_file, "sk-right\n").ok());
  ::testing::internal::CaptureStderr();
  Start();
  const std::vector<http::Header> right = {{"Authorization", "Bearer sk-right"}};
  const std::vector<http::Header> wrong = {{"Authorization", "Bearer sk-wrong"}};
  for (const auto& headers : {std::vector<http::Header>{}, wrong}) {
    for (const http::Response& response :
         {Post("/v1/completions", Completion(), headers), Get("/v1/models", headers),
          Post("/tokenize", {{"prompt", "p"}}, headers), Get("/nowhere", headers)}) {
      EXPECT_EQ(response.status, 401);
      EXPECT_EQ(HeaderOf(response, "WWW-Authenticate"), "Bearer");
      EXPECT_EQ(Json::parse(response.body)["error"]["code"], "invalid_api_key");
    }
  }
  EXPECT_EQ(Post("/v1/completions", Completion(), right).status, 200);
  EXPECT_EQ(Get("/v1/models", right).status, 200);
  for (const char* path : {"/livez", "/readyz", "/health", "/ping"}) {
    EXPECT_EQ(Get(path).status, 200) << path;
  }
  for (const char* path : {"/version", "/metrics", "/openapi.json"}) {
    EXPECT_EQ(Get(path).status, 401) << path;
    EXPECT_EQ(Get(path, wrong).status, 401) << path;
    EXPECT_EQ(Get(path, right).status, 200) << path;
  }
  // A browser asks for leave without the key.
  const http::Response preflight =
      Fetch(server_->port(), "OPTIONS", "/v1/completions", {},
            {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "POST"}});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(HeaderOf(preflight, "Access-Control-Allow-Origin"), "*");
  ASSERT_TRUE(WriteFile(edge_options_.api_key_file, "sk-wrong\n").ok());
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Get("/v1/models", right).status, 401);
  EXPECT_EQ(Get("/v1/models", wrong).status, 200);
  const std::string log = CapturedLog();
  EXPECT_EQ(log.find("sk-"), std::string::npos) << log;
}

}  // namespace
}  // namespace skein::services::testing
