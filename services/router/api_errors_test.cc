// Provokes every error of the API's description.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "services/openai/answer_schemas.h"
#include "services/openai/api_description.h"
#include "services/router/testing/fits_schema.h"
#include "services/router/testing/router_fixture.h"
#include "services/tls/certificates.h"
#include "services/tls/testing/authority.h"

namespace skein::services::testing {
namespace {

class ErrorTest : public RouterTest, public ::testing::WithParamInterface<openai::ErrorCase> {
 protected:
  void Start(FakeCluster::ScriptFn script) { StartRouter(std::move(script), core_, http_options_); }
  http::Response Completion(const Json& more) {
    Json body = {{"model", "m"}, {"prompt", "p"}};
    body.update(more);
    return Post("/v1/completions", body);
  }
  http::Response Get(const char* path) {
    return http::testing::Fetch(server_->port(), "GET", path);
  }
  http::Response Raw(const char* type, const char* body) {
    return http::testing::Fetch(server_->port(), "POST", "/v1/completions", body,
                                {{"Content-Type", type}});
  }
  // With a cluster that plans nothing, but says why.
  http::Response Unplanned(absl::Status why) {
    Start([why](const v1::RequestSpec&) {
      Script script;
      script.plan = why;
      return script;
    });
    return Completion(Json::object());
  }
  void StartSimple() {
    Start([](const v1::RequestSpec&) { return Says("x"); });
  }
  http::Response AskedAndRefused(const Json& more) {
    StartSimple();
    return Completion(more);
  }

  http::Response Saturated() {
    core_.max_streams = 1;
    core_.max_queued = 0;
    Start([](const v1::RequestSpec&) {
      Script script = Says("a");
      script.hold = true;
      return script;
    });
    held_ = std::make_unique<RawClient>(server_->port());
    const Json body = {{"model", "m"}, {"prompt", "p"}, {"stream", true}};
    held_->Send(MakeRequest("POST", "/v1/completions", body.dump()));
    EXPECT_EQ(held_->ReadHead().status, 200);
    return Completion(Json::object());
  }

  http::Response Provoke(const std::string& code);

  scheduler::RouterConfig core_;
  http::ServerOptions http_options_;
  std::unique_ptr<RawClient> held_;
};

http::Response ErrorTest::Provoke(const std::string& code) {
  const std::map<std::string, std::function<http::Response()>> ways = {
      {"invalid_json", [this] { return StartSimple(), Raw("application/json", "{"); }},
      {"unsupported_media_type", [this] { return StartSimple(), Raw("text/plain", "{}"); }},
      {"unknown_url", [this] { return StartSimple(), Get("/nowhere"); }},
      {"method_not_allowed", [this] { return StartSimple(), Get("/v1/completions"); }},
      {"invalid_type",
       [this] {
         return AskedAndRefused({{"n", "x"}});
       }},
      {"invalid_value",
       [this] {
         return AskedAndRefused({{"temperature", 9}});
       }},
      {"missing_required_parameter",
       [this] {
         return AskedAndRefused({{"prompt", nullptr}});
       }},
      {"unsupported_parameter",
       [this] {
         return AskedAndRefused({{"regex", "a*"}});
       }},
      {"unknown_parameter",
       [this] {
         return api_options_.strict = true, AskedAndRefused({{"max_token", 3}});
       }},
      {"empty_prompt",
       [this] {
         return AskedAndRefused({{"prompt", Json::array()}});
       }},
      {"empty_array",
       [this] {
         StartSimple();
         return Post("/v1/chat/completions", {{"model", "m"}, {"messages", Json::array()}});
       }},
      {"context_length_exceeded",
       [this] {
         return AskedAndRefused({{"prompt", std::string(200, 'x')}});
       }},
      {"model_not_found",
       [this] {
         return AskedAndRefused({{"model", "other"}});
       }},
      {"bad_request",
       [this] {
         StartSimple();
         RawClient client(server_->port());
         client.Send("GET /livez HTTP/3.0\r\n\r\n");
         return client.ReadResponse();
       }},
      {"request_too_large",
       [this] {
         http_options_.body_bytes_max = 10;
         return AskedAndRefused(Json::object());
       }},
      {"header_too_large",
       [this] {
         http_options_.header_bytes_max = 1024;
         StartSimple();
         return http::testing::Fetch(server_->port(), "GET", "/v1/models", {},
                                     {{"X", std::string(2000, 'x')}});
       }},
      {"too_many_connections",
       [this] {
         http_options_.connections_max = 1;
         StartSimple();
         held_ = std::make_unique<RawClient>(server_->port());
         held_->Send(MakeRequest("GET", "/livez"));
         EXPECT_EQ(held_->ReadResponse().status, 200);
         return RawClient(server_->port()).ReadResponse();
       }},
      {"rate_limit_exceeded", [this] { return Saturated(); }},
      {"internal_error", [this] { return Unplanned(absl::InternalError("broken")); }},
      {"jobs_off", [this] { return StartSimple(), Get("/v1/files"); }},  // no such service
      {"unavailable", [this] { return Unplanned(absl::UnavailableError("none")); }},
      {"deadline_exceeded", [this] { return Unplanned(absl::DeadlineExceededError("late")); }},
      {"invalid_api_key",
       [this] {
         edge_options_.api_key_file = ::testing::TempDir() + "/keys";
         std::ofstream(edge_options_.api_key_file) << "secret\n";
         return AskedAndRefused(Json::object());
       }},
      {"too_many_wrong_keys",
       [this] {
         edge_options_.api_key_file = ::testing::TempDir() + "/guessed_keys";
         std::ofstream(edge_options_.api_key_file) << "secret\n";
         StartSimple();
         const auto guess = [this] {
           return http::testing::Fetch(server_->port(), "GET", "/v1/models", {},
                                       {{"Authorization", "Bearer guess"}});
         };
         for (int i = 0; i < 11; ++i) EXPECT_EQ(guess().status, 401);
         return guess();
       }},
      {"tls_required",
       [this] {
         const std::string folder = tls::testing::TestFolder("tls");
         tls::testing::Authority().Issue(folder, {});
         http_options_.certificates = *tls::Certificates::Open(
             folder, tls::Needs::kIdentity, /*ask_clients=*/false, std::time(nullptr));
         return StartSimple(), Get("/v1/models");
       }},
      {"certificate_required",
       [this] {
         http_options_.need_certificate = true;
         return StartSimple(), Get("/v1/models");
       }},
      {"origin_not_allowed",
       [this] {
         StartSimple();
         return http::testing::Fetch(
             server_->port(), "OPTIONS", "/v1/completions", {},
             {{"Origin", "http://elsewhere.example"}, {"Access-Control-Request-Method", "POST"}});
       }},
      {"host_not_allowed",
       [this] {
         edge_options_.host = "127.0.0.1";
         StartSimple();
         RawClient client(server_->port());
         client.Send("GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\n\r\n");
         return client.ReadResponse();
       }},
      {"draining",
       [this] { return StartSimple(), api_->BeginDrain(), Completion(Json::object()); }},
      {"not_ready",
       [this] {
         StartSimple();
         http::AddAdminPages({.ready = [] { return absl::UnavailableError("no instance"); }},
                             &routes_);
         return Get("/readyz");
       }},
  };
  const auto way = ways.find(code);
  if (way != ways.end()) return way->second();
  ADD_FAILURE() << "nothing here provokes " << code;
  return {};
}

TEST_P(ErrorTest, IsAnsweredAsDescribed) {
  const http::Response answer = Provoke(std::string(GetParam().code));
  EXPECT_EQ(answer.status, GetParam().status) << answer.body;
  const Json json = Json::parse(answer.body, nullptr, false);
  ExpectFits(json, openai::AnswerSchemas()["Error"], openai::AnswerSchemas(), "error");
  EXPECT_EQ(json["error"]["code"], GetParam().code) << answer.body;
}

INSTANTIATE_TEST_SUITE_P(Codes, ErrorTest, ::testing::ValuesIn(openai::ErrorCases()),
                         [](const auto& info) { return std::string(info.param.code); });

TEST(ApiDescriptionErrorsTest, PathsNameErrorsThatAreDescribed) {
  std::set<std::string_view> known;
  for (const openai::ErrorCase& error : openai::ErrorCases()) known.insert(error.code);
  for (const openai::Endpoint& endpoint : openai::Endpoints()) {
    for (const std::string_view code : endpoint.errors) EXPECT_TRUE(known.count(code)) << code;
  }
}

// A request that waited for a tokenising thread has that much less time for the rest.
TEST_F(RouterTest, TheDeadlineCountsFromTheArrival) {
  api_options_.request_deadline_us = 100'000'000;
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  Ask("/v1/completions", {{"model", "m"}, {"prompt", "p"}});
  ASSERT_EQ(cluster_->specs().size(), 1u);
  const uint64_t left_us = cluster_->specs()[0].deadline_us();
  EXPECT_GT(left_us, 0u);
  EXPECT_LT(left_us, 100'000'000u);
}

TEST_F(RouterTest, WhatWaitedPastItsDeadlineIsRefusedBeforeItIsTokenized) {
  api_options_.request_deadline_us = 1;  // less than it takes to wake a thread
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const std::string p(RouterApi::kSmallBodyBytes, 'p');  // so that it has to wait for a thread
  const Json chat = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", p}}}}};
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, Json>>{{"/v1/completions", {{"prompt", p}}},
                                                 {"/v1/chat/completions", chat},
                                                 {"/tokenize", {{"prompt", p}}}}) {
    const http::Response refused = Post(path, body);
    EXPECT_EQ(refused.status, 504) << path << ": " << refused.body;
    const Json error = Json::parse(refused.body)["error"];
    EXPECT_EQ(error["code"], "deadline_exceeded");
    EXPECT_EQ(error["message"], "The request's deadline passed before it was tokenized.");
  }
  EXPECT_TRUE(cluster_->specs().empty());
  EXPECT_EQ(Ask("/tokenize", {{"prompt", "p"}})["count"], 1) << "a small one waits for no thread";
}

}  // namespace
}  // namespace skein::services::testing
