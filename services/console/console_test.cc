// The console over HTTP, beside an orchestrator that answers as the test says.
#include "services/console/console.h"

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/orchestrator.grpc.pb.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/rpc/rpc.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;
using http::testing::MakeRequest;
using http::testing::RawClient;

class FakeOrchestrator final : public v1::Orchestrator::Service {
 public:
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse* response) override {
    std::lock_guard lock(mutex_);
    ++looks_;
    looked_.notify_all();
    *response = status_;
    return grpc::Status::OK;
  }
  grpc::Status Explain(grpc::ServerContext*, const v1::ExplainRequest* request,
                       v1::ExplainResponse* response) override {
    if (request->request() != "cmpl-1") return ToGrpc(absl::NotFoundError("unknown request"));
    v1::RequestExplanation* one = response->add_requests();
    one->add_names("cmpl-1");
    one->add_plans()->add_chunks()->add_instances(1);
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse*) override {
    std::lock_guard lock(mutex_);
    drained_ = request->instance();
    return grpc::Status::OK;
  }
  grpc::Status ChangeFormation(grpc::ServerContext*, const v1::ChangeFormationRequest*,
                               v1::ChangeFormationResponse*) override {
    return ToGrpc(absl::FailedPreconditionError("not now: a reason"));
  }

  void SetSubmitted(uint64_t submitted) {
    std::lock_guard lock(mutex_);
    status_.set_submitted(submitted);
  }
  void SetStatus(const v1::StatusResponse& status) {
    std::lock_guard lock(mutex_);
    status_ = status;
  }
  // Waits until the whole of one more look has been answered with what is set now.
  bool AwaitLook() {
    std::unique_lock lock(mutex_);
    const int next = looks_ + 2;
    return looked_.wait_for(lock, std::chrono::seconds(30), [&] { return looks_ >= next; });
  }
  uint64_t drained() {
    std::lock_guard lock(mutex_);
    return drained_;
  }
  int looks() {
    std::lock_guard lock(mutex_);
    return looks_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable looked_;
  v1::StatusResponse status_;
  uint64_t drained_ = 0;
  int looks_ = 0;
};

class ConsoleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto rpc = ServeRpc("127.0.0.1:0", {&orchestrator_});
    ASSERT_TRUE(rpc.ok()) << rpc.status();
    rpc_ = *std::move(rpc);
    token_file_ = ::testing::TempDir() + "/token";
    std::ofstream(token_file_) << "secret";
    Start(token_file_);
  }

  // Without a page it looks once, and then no more as long as a test may take.
  void Start(const std::string& token_file,
             std::chrono::milliseconds idle_period = std::chrono::hours(1)) {
    server_.reset();
    console_ = std::make_unique<Console>(
        ConsoleOptions{.cells = {"127.0.0.1:" + std::to_string(rpc_.port)},
                       .models = {"m"},
                       .hosts = {"test"},  // RawClient's
                       .token_file = token_file,
                       .idle_period = idle_period},
        &channels_, [](http::Request request, std::shared_ptr<http::Responder> responder) {
          http::Response response;
          response.body = request.path + " " + request.body;
          responder->Send(std::move(response));
        });
    AddConsoleRoutes(
        [this](http::Request request, std::shared_ptr<http::Responder> responder) {
          console_->Serve(std::move(request), std::move(responder));
        },
        &routes_.emplace_back());
    auto server =
        http::Server::Start({}, [routes = &routes_.back()](http::Request request, auto responder) {
          routes->Serve(std::move(request), std::move(responder));
        });
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
  }

  void TearDown() override {
    console_->Stop();
    server_.reset();
    console_.reset();
    rpc_.server->Shutdown();
  }

  http::Response Ask(std::string_view method, std::string_view target, std::string_view body = {},
                     const std::vector<http::Header>& headers = {}) {
    return http::testing::Fetch(server_->port(), method, target, body, headers);
  }

  // The next event of a stream: its name and what it brings.
  static std::pair<std::string, Json> Next(RawClient* client, std::string* held) {
    size_t end = 0;
    while ((end = held->find("\n\n")) == std::string::npos) {
      std::string chunk;
      if (!client->ReadChunk(&chunk) || chunk.empty()) return {"end", {}};
      *held += chunk;
    }
    const std::string event = held->substr(0, end);
    held->erase(0, end + 2);
    const size_t line = event.find('\n');
    const std::string kind = event.substr(7, line - 7);
    return {kind, Json::parse(event.substr(line + 7))[kind]};
  }

  FakeOrchestrator orchestrator_;
  RpcServer rpc_;
  Channels channels_;
  std::string token_file_;
  std::unique_ptr<Console> console_;
  std::list<http::Routes> routes_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(ConsoleTest, ThePageMayRunOnlyItsOwnFiles) {
  EXPECT_EQ(http::FindHeader(Ask("GET", "/console").headers, "Location"), "console/");
  const http::Response page = Ask("GET", "/console/");
  ASSERT_EQ(page.status, 200);
  const std::string policy(http::FindHeader(page.headers, "Content-Security-Policy"));
  EXPECT_NE(policy.find("default-src 'none'"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  // Nothing inline, and all that it names is here; charts only if npm was there at the build.
  const bool charts = Ask("GET", "/console/uPlot.iife.min.js").status == 200;
  EXPECT_EQ(page.body.find("<style"), std::string::npos);
  EXPECT_EQ(page.body.find(" style="), std::string::npos);
  EXPECT_EQ(page.body.find(" onclick="), std::string::npos);
  for (const char* attribute : {"src=\"", "href=\""}) {
    for (size_t at = page.body.find(attribute); at != std::string::npos;
         at = page.body.find(attribute, at + 1)) {
      const size_t begin = at + std::string(attribute).size();
      const std::string target = page.body.substr(begin, page.body.find('"', begin) - begin);
      if (target.front() == '#' || target == "data:,") continue;
      if (target.rfind("uPlot", 0) == 0 && !charts) continue;
      EXPECT_EQ(Ask("GET", "/console/" + target).status, 200) << target;
    }
  }
  EXPECT_EQ(Ask("GET", "/console/nothing").status, 404);
}

TEST_F(ConsoleTest, AStreamBringsTheStateAndThenWhatChanges) {
  orchestrator_.SetSubmitted(1);
  RawClient client(server_->port());
  ASSERT_TRUE(client.Send(MakeRequest("GET", "/console/stream")));
  ASSERT_EQ(client.ReadHead().status, 200);
  std::string held;
  auto [kind, state] = Next(&client, &held);
  ASSERT_EQ(kind, "state");
  EXPECT_EQ(state["cells"]["0"]["submitted"], 1);
  EXPECT_EQ(state["self"]["orders"], true);
  orchestrator_.SetSubmitted(2);
  for (;;) {
    auto [next, patch] = Next(&client, &held);
    ASSERT_EQ(next, "patch");
    state.merge_patch(patch);
    if (state["cells"]["0"]["submitted"] == 2) break;
  }
  console_->Stop();
  while (Next(&client, &held).first != "end") {
  }
  EXPECT_EQ(Ask("GET", "/console/stream").status, 503);
}

TEST_F(ConsoleTest, WhileNoPageIsOpenItRests) {
  EXPECT_EQ(Ask("GET", "/console/").status, 200);
  EXPECT_LE(orchestrator_.looks(), 1);
}

// Its id has more digits than a number of a page.
TEST_F(ConsoleTest, APageShowsWhatHappenedBeforeItWasOpened) {
  console_->Stop();
  v1::StatusResponse status;
  status.set_generation(8192);
  v1::InstanceStatus* one = status.add_instances();
  one->set_instance(9007199254740993);
  one->mutable_registration()->set_role(v1::ROLE_DECODE);
  orchestrator_.SetStatus(status);
  Start("", std::chrono::milliseconds(1));
  ASSERT_TRUE(orchestrator_.AwaitLook());
  status.clear_instances();
  v1::GoneStatus* gone = status.add_gone();
  gone->set_instance(9007199254740993);
  gone->set_why("its lease expired");
  orchestrator_.SetStatus(status);
  ASSERT_TRUE(orchestrator_.AwaitLook());
  RawClient client(server_->port());
  ASSERT_TRUE(client.Send(MakeRequest("GET", "/console/stream")));
  ASSERT_EQ(client.ReadHead().status, 200);
  std::string held;
  const auto [kind, state] = Next(&client, &held);
  ASSERT_EQ(kind, "state");
  ASSERT_EQ(state["events"].size(), 1U) << state["events"];
  EXPECT_EQ(state["events"]["1"]["text"],
            "decode instance 9007199254740993 was lost (its lease expired)");
  EXPECT_EQ(state["gone"]["0:instance 9007199254740993"]["instance"], "9007199254740993");
}

TEST_F(ConsoleTest, OtherSitesAreRefused) {
  for (const char* target : {"/console/", "/console/stream", "/console/explain?request=cmpl-1"}) {
    EXPECT_EQ(Ask("GET", target, {}, {{"Origin", "http://attacker.example"}}).status, 403);
  }
  EXPECT_EQ(
      Ask("POST", "/console/v1/completions", "{}", {{"Origin", "http://attacker.example"}}).status,
      403);
  RawClient rebound(server_->port());
  ASSERT_TRUE(rebound.Send("GET /console/ HTTP/1.1\r\nHost: attacker.example\r\n\r\n"));
  EXPECT_EQ(rebound.ReadResponse().status, 403);
}

TEST_F(ConsoleTest, ExplainsARequest) {
  const http::Response found = Ask("GET", "/console/explain?cell=0&request=cmpl-1");
  ASSERT_EQ(found.status, 200) << found.body;
  EXPECT_EQ(Json::parse(found.body)["requests"][0]["plans"][0]["chunks"][0]["instances"],
            Json::array({"1"}));
  EXPECT_EQ(Ask("GET", "/console/explain?request=other").status, 404);
  for (const char* query : {"", "?request=", "?request=a&cell=1", "?request=a&cell=x", "?%"}) {
    EXPECT_EQ(Ask("GET", std::string("/console/explain") + query).status, 400) << query;
  }
}

TEST_F(ConsoleTest, OrdersNeedTheToken) {
  const std::string drain = R"({"order":"drain","instance":5})";
  EXPECT_EQ(Ask("POST", "/console/order", drain).status, 401);
  EXPECT_EQ(Ask("POST", "/console/order", drain, {{"Authorization", "Bearer guess"}}).status, 401);
  EXPECT_EQ(orchestrator_.drained(), 0U);
  const std::vector<http::Header> key = {{"Authorization", "Bearer secret"}};
  EXPECT_EQ(Ask("POST", "/console/order", drain, key).status, 200);
  EXPECT_EQ(orchestrator_.drained(), 5U);
  EXPECT_EQ(Ask("POST", "/console/order", "{", key).status, 400);
  const http::Response refused =
      Ask("POST", "/console/order", R"({"order":"bind","group":"g"})", key);
  EXPECT_NE(refused.status, 200);
  EXPECT_NE(refused.body.find("not now: a reason"), std::string::npos) << refused.body;
}

TEST_F(ConsoleTest, WithoutATokenFileItIsReadOnly) {
  console_->Stop();
  Start("");
  EXPECT_EQ(Ask("POST", "/console/order", R"({"order":"drain","instance":5})",
                {{"Authorization", "Bearer secret"}})
                .status,
            403);
  EXPECT_EQ(orchestrator_.drained(), 0U);
}

TEST_F(ConsoleTest, APromptGoesToTheApi) {
  EXPECT_EQ(Ask("POST", "/console/v1/chat/completions", "{}").body, "/v1/chat/completions {}");
  EXPECT_EQ(Ask("POST", "/console/v1/files", "{}").status, 404);
}

}  // namespace
}  // namespace skein::services
