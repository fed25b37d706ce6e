// Lines of jobs that an orchestrator gives to a router, which runs them through its API.
#include "services/router/jobs/line_runner.h"

#include <gtest/gtest.h>

#include <set>

#include "services/router/testing/fake_jobs.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
const Json kMessages = Json::array({{{"role", "user"}, {"content", "a"}}});

class LinesTest : public RouterTest {
 protected:
  void SetUp() override {
    services_.push_back(&jobs_service_);
    jobs_options_.lines.lines_max = 4;
    jobs_options_.lines.first_pause_us = 1000;
    jobs_options_.lines.pause_max_us = 2000;
    jobs_options_.lines.reopen_us = 1000;
    jobs_options_.lines.reopen_max_us = 2000;
  }
  void TearDown() override {
    jobs_service_.Stop();
    RouterTest::TearDown();
  }

  void Start(FakeCluster::ScriptFn script, scheduler::RouterConfig core = {}) {
    StartRouter(std::move(script), core);
    jobs_->lines().Start();
    const v1::RouterLines hello = jobs_service_.Next();
    ASSERT_TRUE(hello.has_hello());
    EXPECT_EQ(hello.hello().router(), 7u);
    EXPECT_EQ(hello.hello().room(), 4u);
    EXPECT_EQ(hello.hello().held_size(), 0);
    Lease();
  }
  void StartSaying(const std::string& text) {
    Start([text](const v1::RequestSpec&) { return Says(text); });
  }
  // Requests never end.
  void StartHolding() {
    Start([](const v1::RequestSpec&) {
      Script script = Says("x");
      script.hold = true;
      return script;
    });
  }
  void Lease() {
    v1::OrchestratorLines lease;
    lease.set_lease_us(3'000'000);
    jobs_service_.Send(lease);
  }

  void Give(uint64_t line, const Json& more = Json::object()) {
    Json body = {{"model", "m"}, {"messages", kMessages}};
    body.update(more);
    jobs_service_.GiveLine("batch_1", line, kChat, body.dump());
  }
  v1::RouterLines::Result NextResult() {
    const v1::RouterLines message = jobs_service_.Next();
    EXPECT_TRUE(message.has_result()) << message.DebugString();
    return message.result();
  }
  // Waits for it.
  void ExpectHeld(int64_t lines) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (jobs_->lines().Held() != lines && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(jobs_->lines().Held(), lines);
  }
  // Waits until so many requests are under way at the decode worker.
  void AwaitAttached(int requests) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (cluster_->attached() < requests && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(cluster_->attached(), requests);
  }
  // Waits until the cluster has so many requests.
  void AwaitSpecs(size_t specs) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (cluster_->specs().size() < specs && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(cluster_->specs().size(), specs);
  }
  double Counted(const char* outcome) {
    return metrics_.Counter("skein_router_job_lines_total", "", {{"outcome", outcome}}).Value();
  }

  FakeJobs jobs_service_;
};

TEST_F(LinesTest, ALineIsAnsweredAsItsRequestIs) {
  StartSaying("hello");
  Give(1, {{"seed", 5}});
  const v1::RouterLines::Result result = NextResult();
  EXPECT_EQ(result.line().job(), "batch_1");
  EXPECT_EQ(result.line().line(), 1u);
  EXPECT_EQ(result.status_code(), 200u);
  EXPECT_EQ(result.request_id().rfind("batch_req_", 0), 0u);
  const Json answer = Json::parse(result.body());
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(result.output_tokens(), answer["usage"]["completion_tokens"]);
  EXPECT_EQ(result.prompt_tokens(), answer["usage"]["prompt_tokens"]);
  const Json online = Ask(kChat, {{"model", "m"}, {"messages", kMessages}, {"seed", 5}});
  EXPECT_EQ(online["choices"], answer["choices"]);
  const auto specs = cluster_->specs();
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].prompt(), specs[1].prompt());
  EXPECT_EQ(specs[0].priority(), RouterApi::kLinePriority);
  EXPECT_EQ(specs[1].priority(), 0);
  EXPECT_GT(specs[1].priority(), specs[0].priority());
  ExpectHeld(1);
  jobs_service_.Keep(result.line());
  ExpectHeld(0);
  EXPECT_EQ(Counted("completed"), 1);
}

TEST_F(LinesTest, CompletionsAreServedToo) {
  StartSaying("hello");
  jobs_service_.GiveLine("batch_1", 1, "/v1/completions",
                         R"({"model": "m", "prompt": "p", "max_tokens": 5})");
  const v1::RouterLines::Result result = NextResult();
  EXPECT_EQ(result.status_code(), 200u);
  EXPECT_EQ(Json::parse(result.body())["choices"][0]["text"], "hello");
}

// What is the line's own fault is its result.
TEST_F(LinesTest, AWrongLineIsAnsweredWithItsError) {
  StartSaying("x");
  struct Case {
    Json more;
    uint32_t status;
    const char* param;
  };
  const std::vector<Case> cases = {{{{"temperature", 9}}, 400, "temperature"},
                                   {{{"stream", true}}, 400, "stream"},
                                   {{{"model", "other"}}, 404, "model"},
                                   {{{"messages", nullptr}}, 400, "messages"}};
  uint64_t line = 0;
  for (const Case& wrong : cases) {
    Give(++line, wrong.more);
    const v1::RouterLines::Result result = NextResult();
    EXPECT_EQ(result.line().line(), line);
    EXPECT_EQ(result.status_code(), wrong.status);
    EXPECT_EQ(Json::parse(result.body())["error"]["param"], wrong.param) << result.body();
    jobs_service_.Keep(result.line());
  }
  EXPECT_TRUE(cluster_->specs().empty());
  EXPECT_EQ(Counted("failed"), 4);
}

// The body's own priority is not heard.
TEST_F(LinesTest, LinesCannotBeMoreUrgent) {
  StartSaying("x");
  Give(1, {{"priority", -5}});
  NextResult();
  EXPECT_EQ(cluster_->specs().at(0).priority(), INT32_MIN);
}

TEST_F(LinesTest, AFailureOfTheClusterGivesTheLineBack) {
  Start([](const v1::RequestSpec&) {
    Script script;
    script.plan = absl::UnavailableError("no instance is left");
    return script;
  });
  Give(1);
  const v1::RouterLines message = jobs_service_.Next();
  ASSERT_TRUE(message.has_returned()) << message.DebugString();
  EXPECT_EQ(message.returned().line().line(), 1u);
  EXPECT_EQ(message.returned().why(), "503: no instance is left");
  ExpectHeld(0);
}

// The router's queue knows no priorities, so lines do not go there.
TEST_F(LinesTest, LinesDoNotWaitAmongOnlineRequests) {
  scheduler::RouterConfig core;
  core.max_streams = 1;
  Start(
      [](const v1::RequestSpec&) {
        Script script = Says("x");
        script.hold = true;
        return script;
      },
      core);
  RawClient online(server_->port());
  const Json body = {{"model", "m"}, {"prompt", "p"}, {"stream", true}};
  online.Send(MakeRequest("POST", "/v1/completions", body.dump()));
  EXPECT_EQ(online.ReadHead().status, 200);
  Give(1);
  const v1::RouterLines message = jobs_service_.Next();
  ASSERT_TRUE(message.has_returned()) << message.DebugString();
  EXPECT_EQ(message.returned().why().rfind("429", 0), 0u) << message.returned().why();
  EXPECT_EQ(cluster_->specs().size(), 1u);
}

TEST_F(LinesTest, TheSameLineMayComeAgain) {
  std::atomic<int> asked{0};
  Start([&asked](const v1::RequestSpec&) {
    Script script = Says("x");
    if (asked.fetch_add(1) == 0) script.plan = absl::ResourceExhaustedError("no room");
    return script;
  });
  Give(1);
  ASSERT_TRUE(jobs_service_.Next().has_returned());
  Give(1);
  EXPECT_EQ(NextResult().status_code(), 200u);
  EXPECT_EQ(Counted("returned"), 1);
  EXPECT_EQ(Counted("completed"), 1);
}

TEST_F(LinesTest, ALineThatIsHeldIsNotRunTwice) {
  StartHolding();
  Give(1);
  AwaitSpecs(1);
  Give(1);
  Give(2);
  AwaitSpecs(2);
  ExpectHeld(2);
}

TEST_F(LinesTest, ABrokenStreamIsOpenedAnewAndNamesWhatIsHeld) {
  Start([](const v1::RequestSpec& spec) {
    Script script = Says("x");
    script.hold = spec.max_tokens() == 7;
    return script;
  });
  Give(1, {{"max_tokens", 7}});  // runs on
  AwaitSpecs(1);
  Give(2);
  const v1::RouterLines::Result result = NextResult();  // is not kept
  jobs_service_.BreakStream();
  const v1::RouterLines hello = jobs_service_.Next();
  ASSERT_TRUE(hello.has_hello());
  std::set<uint64_t> held;
  for (const v1::LineId& id : hello.hello().held()) held.insert(id.line());
  EXPECT_EQ(held, (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(NextResult().SerializeAsString(), result.SerializeAsString());
  jobs_service_.Keep(result.line());
  ExpectHeld(1);
  EXPECT_EQ(cluster_->specs().size(), 2u);
}

TEST_F(LinesTest, WhatIsCancelledEndsAtTheCluster) {
  StartHolding();
  Give(1);
  AwaitAttached(1);
  v1::OrchestratorLines cancel;
  cancel.mutable_cancel()->set_job("batch_1");
  cancel.mutable_cancel()->set_line(1);
  jobs_service_.Send(cancel);
  ExpectHeld(0);
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
  EXPECT_EQ(Counted("cancelled"), 1);
}

TEST_F(LinesTest, ARouterThatDrainsTakesNoneAndFinishesItsOwn) {
  StartHolding();
  Give(1);
  AwaitSpecs(1);
  jobs_->lines().SetDraining(true);
  const v1::RouterLines hello = jobs_service_.Next();
  ASSERT_TRUE(hello.has_hello());
  EXPECT_EQ(hello.hello().room(), 0u);
  ASSERT_EQ(hello.hello().held_size(), 1);
  EXPECT_EQ(hello.hello().held(0).line(), 1u);
  jobs_->lines().SetDraining(false);
  EXPECT_EQ(jobs_service_.Next().hello().room(), 4u);
  ExpectHeld(1);
}

TEST_F(LinesTest, ARouterThatLeavesGivesBackWhatRuns) {
  StartHolding();
  Give(1);
  Give(2);
  AwaitAttached(2);
  jobs_->lines().Leave(std::chrono::seconds(30));
  std::set<uint64_t> returned;
  for (int i = 0; i < 2; ++i) {
    const v1::RouterLines message = jobs_service_.Next();
    ASSERT_TRUE(message.has_returned()) << message.DebugString();
    returned.insert(message.returned().line().line());
  }
  EXPECT_EQ(returned, (std::set<uint64_t>{1, 2}));
  EXPECT_TRUE(cluster_->AwaitEnded(2, 2));
}

TEST_F(LinesTest, LinesAreNotCountedAmongClientsRequests) {
  StartSaying("x");
  Give(1);
  jobs_service_.Keep(NextResult().line());
  ExpectHeld(0);
  const std::string page = metrics_.Render();
  EXPECT_NE(page.find("skein_router_job_lines_running 0"), std::string::npos);
  EXPECT_EQ(page.find("skein_router_answers_total{path=\"/v1/chat/completions\",status=\"200\"} 1"),
            std::string::npos);
  EXPECT_EQ(router_metrics_.Of("m").generation_tokens.Value(), 1);
}

}  // namespace
}  // namespace skein::services::testing
