// The load generator against an HTTP server with OpenAI's API.
#include "services/skeinctl/bench/bench.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <future>
#include <mutex>
#include <set>

#include "nlohmann/json.hpp"
#include "services/base/file.h"
#include "services/http/server.h"
#include "services/tls/certificates.h"
#include "services/tls/testing/authority.h"

namespace skein::services::bench {
namespace {

using Json = nlohmann::json;
using ResponderPtr = std::shared_ptr<http::Responder>;

void Stream(const ResponderPtr& responder, const std::vector<std::string>& events) {
  http::Response head;
  head.content_type = "text/event-stream";
  responder->StartStream(std::move(head));
  for (const std::string& event : events) responder->Write("data: " + event + "\n\n");
  responder->Finish();
}

void AnswerWell(const Json& asked, const ResponderPtr& responder) {
  std::vector<std::string> events;
  for (int64_t i = 0; i < asked["max_tokens"]; ++i) {
    events.push_back(R"({"choices":[{"text":"x"}]})");
  }
  const Json usage = {
      {"choices", Json::array()},
      {"usage",
       {{"prompt_tokens", asked["prompt"].size()}, {"completion_tokens", asked["max_tokens"]}}}};
  events.push_back(usage.dump());
  events.push_back("[DONE]");
  Stream(responder, events);
}

class BenchTest : public ::testing::Test {
 protected:
  using AnswerFn = std::function<void(int number, const Json& asked, const ResponderPtr&)>;

  void Serve(AnswerFn answer) {
    if (models_.body.empty()) models_.body = R"({"data":[{"id":"only"}]})";
    routes_.AddPage("/v1/models", [this](const http::Request&) { return models_; });
    routes_.Add("POST", "/v1/completions",
                [this, answer](http::Request request, ResponderPtr responder) {
                  const Json asked = Json::parse(request.body);
                  int number = 0;
                  {
                    std::lock_guard lock(mu_);
                    number = static_cast<int>(asked_.size());
                    asked_.push_back(asked);
                  }
                  answer(number, asked, responder);
                });
    auto server = http::Server::Start(options_, [this](http::Request request, auto responder) {
      routes_.Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    flags_.url = "http://127.0.0.1:" + std::to_string(server_->port());
    flags_.out = std::string(std::getenv("TEST_TMPDIR")) + "/bench.json";
    flags_.records_out = flags_.out + "l";
    flags_.input_tokens = 12;
    flags_.output_tokens = 4;
  }

  Json Result() const { return Json::parse(*ReadFile(flags_.out)); }
  std::vector<Json> Records() const {
    std::vector<Json> records;
    std::ifstream file(flags_.records_out);
    for (std::string line; std::getline(file, line);) records.push_back(Json::parse(line));
    return records;
  }

  // From the next Serve on: https, with a certificate of this name; clients trust the authority.
  void UseTls(const std::string& name) {
    const std::string folder = tls::testing::TestFolder("server");
    authority_.Issue(folder, {.names = {name}});
    options_.certificates =
        *tls::Certificates::Open(folder, tls::Needs::kIdentity, true, std::time(nullptr));
    flags_.tls_dir = tls::testing::TestFolder("client");
    authority_.Publish(flags_.tls_dir);
  }
  // After Serve.
  void AskByHttps() { flags_.url = "https://127.0.0.1:" + std::to_string(server_->port()); }

  const tls::testing::Authority authority_;
  http::ServerOptions options_{.threads = 4};
  BenchFlags flags_;
  http::Response models_;  // the server's list; its body empty: of one
  std::mutex mu_;
  std::vector<Json> asked_;  // guarded by mu_
  http::Routes routes_;
  std::unique_ptr<http::Server> server_;  // last: its threads use the above
};

TEST_F(BenchTest, ClosedLoopMeasuresAllAndKeepsItsConcurrency) {
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  flags_.concurrency = 3;
  flags_.requests = 20;
  flags_.warmup_requests = 4;
  flags_.goodput = "request_latency:60000";
  EXPECT_EQ(RunBench(flags_), 0);
  const Json json = Result();
  EXPECT_EQ(json["request_count"]["avg"], 20);
  EXPECT_EQ(json["good_request_count"]["avg"], 20);
  EXPECT_EQ(json["input_sequence_length"]["min"], 12);
  EXPECT_EQ(json["total_osl"]["avg"], 80);
  EXPECT_EQ(json["input_config"]["endpoint"]["model_names"][0], "only");
  EXPECT_EQ(asked_.size(), 24u);
  EXPECT_EQ(asked_[0]["model"], "only");
  std::set<std::string> prompts;  // warm-up prompts are not repeated
  for (const Json& asked : asked_) prompts.insert(asked["prompt"].dump());
  EXPECT_EQ(prompts.size(), 24u);
  EXPECT_EQ(Records().size(), 20u);
  EXPECT_EQ(server_->stats().accepted,
            3u);  // never more concurrent requests; connections are reused
}

TEST_F(BenchTest, AsksByHttpsAndReusesConnections) {
  UseTls(tls::testing::RoleName("router"));
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  AskByHttps();
  flags_.concurrency = 2;
  flags_.requests = 10;
  EXPECT_EQ(RunBench(flags_), 0);
  EXPECT_EQ(Result()["request_count"]["avg"], 10);
  EXPECT_LE(server_->stats().accepted, 2u);
  flags_.url = flags_.url.substr(sizeof "https://" - 1);
  EXPECT_EQ(RunBench(flags_), 0) << "with --tls-dir https is meant";
}

TEST_F(BenchTest, RefusesAServerThatItsAuthoritiesDoNotVouchFor) {
  UseTls("DNS:elsewhere.example.org");
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  AskByHttps();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("nor is it for the host '127.0.0.1'"), std::string::npos) << said;
  // Without --tls-dir this machine's authorities count.
  flags_.tls_dir.clear();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("TLS: self-signed certificate in certificate chain (give --tls-dir"),
            std::string::npos)
      << said;
  // Who asks an https port without TLS hears what it says of that.
  flags_.url = "http" + flags_.url.substr(sizeof "https" - 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("was answered 400: This port speaks TLS"), std::string::npos) << said;
  EXPECT_TRUE(asked_.empty());
}

TEST_F(BenchTest, AnHttpsAddressOfAPlainPortIsExplained) {
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  AskByHttps();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("(the port does not speak TLS: use http://)"), std::string::npos) << said;
}

TEST_F(BenchTest, AServerThatWantsACertificateIsNotTakenForOneThatWantsAKey) {
  models_.status = 403;
  models_.body = R"({"error":{"message":"no certificate","code":"certificate_required"}})";
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("403: no certificate (give --tls-dir with"), std::string::npos) << said;
}

// What a terminal would obey is not shown as it came.
TEST_F(BenchTest, WhatAServerSaysOfItsRefusalIsShownInAscii) {
  models_.status = 403;
  models_.body = R"({"error":{"message":"it's \u001b[2J\n\u009b2J \u00fc"}})";
  Serve([](int, const Json& asked, const ResponderPtr& r) { AnswerWell(asked, r); });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunBench(flags_), 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(R"(was answered 403: it's \u001b[2J\n\u009b2J \u00fc (set the key)"),
            std::string::npos)
      << said;
}

TEST_F(BenchTest, FailuresAreCountedByKindAndNoneIsDropped) {
  Serve([](int number, const Json& asked, const ResponderPtr& responder) {
    http::Response refusal;
    refusal.status = 429;
    refusal.body = R"({"error":{"message":"full"}})";
    switch (number % 4) {
      case 0:
        return AnswerWell(asked, responder);
      case 1:
        return responder->Send(std::move(refusal));
      case 2:
        return Stream(responder, {R"({"choices":[{"text":"x"}]})", R"({"error":{"message":"d"}})"});
      default:
        return responder->Abort();
    }
  });
  flags_.model = "m";
  flags_.requests = 16;
  EXPECT_EQ(RunBench(flags_), 1);
  const Json json = Result();
  EXPECT_EQ(json["request_count"]["avg"], 4);
  EXPECT_EQ(json["error_request_count"]["avg"], 12);
  std::map<std::string, int> errors;
  for (const Json& error : json["error_summary"]) {
    errors[error["error_details"]["type"]] = error["count"];
  }
  EXPECT_EQ(errors, (std::map<std::string, int>{
                        {"HTTP 429", 4}, {"error event", 4}, {"connection closed", 4}}));
  EXPECT_EQ(Records().size(), 16u);
}

// The server holds the first answer until the last request has arrived; only an open loop sends it.
TEST_F(BenchTest, OpenLoopSendsWhenDueWhateverTheServerDoes) {
  constexpr int kRequests = 6;
  std::promise<std::pair<Json, ResponderPtr>> first;
  Serve([&](int number, const Json& asked, const ResponderPtr& responder) {
    if (number == 0) return first.set_value({asked, responder});
    AnswerWell(asked, responder);
    if (number < kRequests - 1) return;
    const auto [held_asked, held] = first.get_future().get();
    AnswerWell(held_asked, held);
  });
  flags_.model = "m";
  flags_.rate = 100;
  flags_.arrivals = "constant";
  flags_.requests = kRequests;
  EXPECT_EQ(RunBench(flags_), 0);
  const std::vector<Json> records = Records();
  ASSERT_EQ(records.size(), static_cast<size_t>(kRequests));
  for (int i = 1; i < kRequests; ++i) {
    const int64_t gap_ns = records[i]["metadata"]["request_intended_ns"].get<int64_t>() -
                           records[i - 1]["metadata"]["request_intended_ns"].get<int64_t>();
    EXPECT_NEAR(static_cast<double>(gap_ns), 1e7, 1e3);
  }
}

// With one call at a time the second waits in the client; its latency includes the wait.
TEST_F(BenchTest, WaitingInTheClientIsLatency) {
  Serve(
      [](int, const Json& asked, const ResponderPtr& responder) { AnswerWell(asked, responder); });
  flags_.model = "m";
  flags_.rate = 1e6;
  flags_.concurrency = 1;
  flags_.requests = 30;
  EXPECT_EQ(RunBench(flags_), 0);
  const std::vector<Json> records = Records();
  ASSERT_EQ(records.size(), 30u);
  EXPECT_EQ(server_->stats().accepted, 1u);
  const auto latency = [&](size_t i) {
    return records[i]["metrics"]["request_latency"]["value"].get<double>();
  };
  EXPECT_GT(latency(29), latency(0));
}

TEST_F(BenchTest, TheDurationEndsTheSending) {
  Serve(
      [](int, const Json& asked, const ResponderPtr& responder) { AnswerWell(asked, responder); });
  flags_.model = "m";
  flags_.rate = 50;
  flags_.arrivals = "constant";
  flags_.duration_s = 0.1;
  EXPECT_EQ(RunBench(flags_), 0);
  EXPECT_EQ(Records().size(), 5u);  // at 0, 20, 40, 60, 80 ms
}

TEST_F(BenchTest, ReplaysATrace) {
  Serve(
      [](int, const Json& asked, const ResponderPtr& responder) { AnswerWell(asked, responder); });
  flags_.trace = std::string(std::getenv("TEST_TMPDIR")) + "/trace.jsonl";
  std::ofstream(flags_.trace)
      << R"({"timestamp": 1000, "input_length": 6, "output_length": 2, "hash_ids": [1, 2]})"
         "\n"
      << R"({"timestamp": 3000, "input_length": 8, "output_length": 3, "hash_ids": [1, 3]})"
         "\n";
  flags_.model = "m";
  flags_.block_tokens = 4;
  flags_.speedup = 100;
  EXPECT_EQ(RunBench(flags_), 0);
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[0]["prompt"].size(), 6u);
  EXPECT_EQ(asked_[1]["max_tokens"], 3);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(asked_[0]["prompt"][i], asked_[1]["prompt"][i]);
  EXPECT_NE(asked_[0]["prompt"][4], asked_[1]["prompt"][4]);
}

TEST_F(BenchTest, NobodyThereIsAnErrorOfEachRequest) {
  Serve(
      [](int, const Json& asked, const ResponderPtr& responder) { AnswerWell(asked, responder); });
  server_.reset();
  flags_.model = "m";
  flags_.requests = 3;
  EXPECT_EQ(RunBench(flags_), 1);
  const Json json = Result();
  EXPECT_EQ(json["error_summary"][0]["error_details"]["type"], "connect");
  EXPECT_EQ(json["error_summary"][0]["count"], 3);
  flags_.model = "";
  EXPECT_EQ(RunBench(flags_), 1);
}

TEST_F(BenchTest, ASlowAnswerIsATimeout) {
  ResponderPtr held;
  Serve([&](int, const Json&, const ResponderPtr& responder) { held = responder; });
  flags_.model = "m";
  flags_.requests = 1;
  flags_.request_timeout_s = 0.05;
  EXPECT_EQ(RunBench(flags_), 1);
  EXPECT_EQ(Result()["error_summary"][0]["error_details"]["type"], "timeout");
}

TEST(BenchFlags, AreCheckedBeforeAnythingIsSent) {
  const auto wrong = [](auto change) {
    BenchFlags flags;
    change(&flags);
    return RunBench(flags);
  };
  EXPECT_EQ(wrong([](BenchFlags* f) { f->url = "ftp://x"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->tls_dir = "/nonexistent"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->endpoint = "images"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->arrivals = "bursts"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->format = "xml"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->goodput = "ttft:1"; }), 2);
  // Metrics that need a stream cannot be objectives without one.
  for (const char* metric : {"time_to_first_token:1", "inter_token_latency:1",
                             "request_latency:1 output_token_throughput_per_user:1"}) {
    EXPECT_EQ(wrong([&](BenchFlags* f) { f->goodput = metric, f->streaming = false; }), 2)
        << metric;
  }
  EXPECT_EQ(wrong([](BenchFlags* f) { f->sharegpt = "/nonexistent"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->trace = f->prompts = "x"; }), 2);
  EXPECT_EQ(wrong([](BenchFlags* f) { f->speedup = 2; }), 2);
}

}  // namespace
}  // namespace skein::services::bench
