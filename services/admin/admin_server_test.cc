// The admin port as probes, operators and preStop hooks use it.
#include "services/admin/admin_server.h"

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <variant>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/admin/admin_access.h"
#include "services/admin/drain_arguments.h"
#include "services/http/testing/raw_client.h"

namespace skein::services {
namespace {

using http::testing::Fetch;
using Json = nlohmann::json;

class AdminServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AdminHooks hooks;
    hooks.service = "test";
    hooks.status = [this] { return Status(); };
    hooks.live = [this] {
      return failed_ ? absl::UnavailableError("the engine failed: why") : absl::OkStatus();
    };
    hooks.order = [this](const DrainOrder& order) {
      if (order.drain && last_ && !order.force) {
        return absl::FailedPreconditionError("it is the last one that serves");
      }
      drains_ = order.drain;
      return absl::OkStatus();
    };
    hooks.metrics = [] { return "m 1\n"; };
    hooks.invariants = [this] {
      if (!started_) return absl::UnavailableError("starting or stopping");
      return violated_ ? absl::InternalError("5: \"a\"\n") : absl::OkStatus();
    };
    hooks.hosts = {"console.example"};
    auto started = AdminServer::Start({}, "127.0.0.1", std::move(hooks));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  ProcessStatus Status() {
    ProcessStatus status{.role = "test", .started = started_};
    status.in_flight = status.running = running_;
    status.state = !started_      ? ProcessState::kLoading
                   : !drains_     ? ProcessState::kServing
                   : running_ > 0 ? ProcessState::kDraining
                                  : ProcessState::kDrained;
    status.safe_to_delete = status.state == ProcessState::kDrained;
    if (status.state != ProcessState::kServing) status.reason = "because";
    return status;
  }

  http::Response Ask(std::string_view method, std::string_view target,
                     const std::vector<http::Header>& headers = {}) {
    return Fetch(server_->port(), method, target, {}, headers);
  }

  std::atomic<bool> started_{true}, drains_{false}, last_{false}, failed_{false}, violated_{false};
  std::atomic<int> running_{0};
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, LivezSaysWhyTheProcessShouldEnd) {
  EXPECT_EQ(Ask("GET", "/livez").status, 200);
  failed_ = true;
  const http::Response dead = Ask("GET", "/livez");
  EXPECT_EQ(dead.status, 503);
  EXPECT_NE(dead.body.find("Not alive: the engine failed: why"), std::string::npos) << dead.body;
}

TEST_F(AdminServerTest, AViolatedInvariantIsToldAsItIs) {
  EXPECT_EQ(Json::parse(Ask("GET", "/debug/invariants").body), Json({{"ok", true}}));
  violated_ = true;
  EXPECT_EQ(Json::parse(Ask("GET", "/debug/invariants").body),
            Json({{"ok", false}, {"violated", "5: \"a\"\n"}}));
}

TEST_F(AdminServerTest, NothingIsViolatedWhileThereIsNothingToCheck) {
  started_ = false;
  const http::Response response = Ask("GET", "/debug/invariants");
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("Not checked: starting or stopping"), std::string::npos)
      << response.body;
}

TEST_F(AdminServerTest, ProbesTellStartReadinessAndLifeApart) {
  started_ = false;
  EXPECT_EQ(Ask("GET", "/livez").status, 200);
  for (const char* path : {"/startupz", "/readyz", "/health"}) {
    const http::Response response = Ask("GET", path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_NE(response.body.find(": because"), std::string::npos) << response.body;
  }
  started_ = true;
  for (const char* path : {"/livez", "/startupz", "/readyz"}) {
    EXPECT_EQ(Ask("GET", path).status, 200) << path;
  }
  drains_ = true;
  EXPECT_EQ(Ask("GET", "/readyz").status, 503);
  EXPECT_EQ(Ask("GET", "/startupz").status, 200);
  EXPECT_EQ(Ask("GET", "/livez").status, 200);
}

// DNS rebinding: a page on the web whose name resolves to this machine reads as if from its own
// site.
TEST_F(AdminServerTest, APageWhoseNameWasMadeToResolveHereReadsNothing) {
  for (const char* path : {"/status", "/metrics", "/"}) {
    http::testing::RawClient page(server_->port());
    page.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: evil.example:8001\r\n\r\n");
    const http::Response response = page.ReadResponse();
    EXPECT_EQ(response.status, 403) << path;
    EXPECT_NE(response.body.find("host_not_allowed"), std::string::npos) << response.body;
  }
  http::testing::RawClient proxy(server_->port());
  proxy.Send("GET /status HTTP/1.1\r\nHost: console.example\r\n\r\n");
  EXPECT_EQ(proxy.ReadResponse().status, 200) << "a name that the process was given";
}

TEST_F(AdminServerTest, DrainIsIdempotentAndCanBeUndone) {
  running_ = 2;
  for (int i = 0; i < 2; ++i) {
    const http::Response response = Ask("POST", "/drain");
    EXPECT_EQ(response.status, 202);
    const Json json = Json::parse(response.body);
    EXPECT_EQ(json["state"], "draining");
    EXPECT_EQ(json["in_flight"], 2);
    EXPECT_EQ(json["safe_to_delete"], false);
  }
  running_ = 0;
  EXPECT_EQ(Ask("POST", "/drain").status, 200);
  const http::Response resumed = Ask("POST", "/resume");
  EXPECT_EQ(resumed.status, 200);
  EXPECT_EQ(Json::parse(resumed.body)["state"], "serving");
  EXPECT_EQ(Json::parse(Ask("GET", "/status").body)["state"], "serving");
}

TEST_F(AdminServerTest, TheAnswerIsHeldUntilItIsSafeOrTheTimeIsOver) {
  running_ = 1;
  EXPECT_EQ(Ask("POST", "/drain?wait_s=0.15").status, 202) << "wait_s has passed";
  http::testing::RawClient waits(server_->port());
  ASSERT_TRUE(waits.Send(http::testing::MakeRequest("POST", "/drain?wait_s=60")));
  EXPECT_EQ(waits.ReadResponse(false, 300).status, 0) << "it waits";
  EXPECT_EQ(Ask("GET", "/livez").status, 200) << "and others are served";
  running_ = 0;
  const http::Response safe = waits.ReadResponse();
  EXPECT_EQ(safe.status, 200);
  EXPECT_EQ(Json::parse(safe.body)["safe_to_delete"], true);
}

TEST_F(AdminServerTest, WhoWaitsIsAnsweredWhenTheProcessEnds) {
  running_ = 1;
  http::testing::RawClient waits(server_->port());
  ASSERT_TRUE(waits.Send(http::testing::MakeRequest("POST", "/drain?wait_s=60")));
  while (!drains_) std::this_thread::yield();
  server_->Stop(std::chrono::milliseconds(1000));
  EXPECT_NE(waits.ReadResponse().status, 0);
}

TEST_F(AdminServerTest, TheLastOneIsDrainedByForceOnly) {
  last_ = true;
  const http::Response refused = Ask("POST", "/drain");
  EXPECT_EQ(refused.status, 409);
  EXPECT_NE(refused.body.find("the last one that serves; force=1"), std::string::npos)
      << refused.body;
  EXPECT_FALSE(drains_);
  EXPECT_EQ(Ask("POST", "/drain?force=1").status, 200);
}

TEST_F(AdminServerTest, WrongMethodsAndArgumentsAreNamed) {
  for (const char* path : {"/drain", "/resume"}) {
    const http::Response response = Ask("GET", path);
    EXPECT_EQ(response.status, 405);
    EXPECT_EQ(http::FindHeader(response.headers, "Allow"), "POST, OPTIONS");
  }
  EXPECT_EQ(Ask("POST", "/status").status, 405);
  const http::Response response = Ask("POST", "/drain?wait_s=soon");
  EXPECT_EQ(response.status, 400);
  const Json error = Json::parse(response.body)["error"];
  EXPECT_EQ(error["param"], "wait_s");
  EXPECT_EQ(error["message"], "wait_s: 'soon' is not a number from 0 to 3600.");
  EXPECT_EQ(Ask("POST", "/resume?now=1").status, 400);
  EXPECT_FALSE(drains_);
}

TEST(DrainArguments, EachBadOneIsNamedWithItsValue) {
  const auto what = [](std::string_view query) {
    const auto parsed = ParseDrainArguments(query);
    const auto* bad = std::get_if<BadArgument>(&parsed);
    return bad == nullptr ? std::string() : bad->what;
  };
  EXPECT_EQ(what(""), "");
  EXPECT_EQ(what("wait_s=2.5&force=true"), "");
  EXPECT_EQ(what("wait_s=-1"), "wait_s: '-1' is not a number from 0 to 3600");
  EXPECT_EQ(what("wait_s=nan"), "wait_s: 'nan' is not a number from 0 to 3600");
  EXPECT_EQ(what("wait_s"), "wait_s: '' is not a number from 0 to 3600");
  EXPECT_EQ(what("force=yes"), "force: 'yes' is not 0, 1, false or true");
  EXPECT_EQ(what("force=1&force=0"), "force: given twice");
  EXPECT_EQ(what("timeout=3"), "'timeout' is unknown; known: wait_s, force");
}

int Refusal(const std::string& remote, const std::string& file,
            const std::vector<http::Header>& headers = {}) {
  http::Request request;
  request.remote = remote;
  request.headers = headers;
  const auto refusal = RefuseAdmin(request, file);
  return refusal.has_value() ? refusal->status : 0;
}

TEST(AdminAccess, ThisHostOrTheToken) {
  EXPECT_EQ(Refusal("127.0.0.1", ""), 0);
  EXPECT_EQ(Refusal("127.9.9.9", ""), 0);
  EXPECT_EQ(Refusal("::1", ""), 0);
  EXPECT_EQ(Refusal("::ffff:127.0.0.1", ""), 0);
  EXPECT_EQ(Refusal("10.0.0.7", ""), 403);
  EXPECT_EQ(Refusal("::ffff:10.0.0.7", ""), 403);
  EXPECT_EQ(Refusal("127.0.0.1", "", {{"Origin", "http://evil.example"}}), 403);
  const std::string file = ::testing::TempDir() + "/token";
  std::ofstream(file) << " secret\n";
  EXPECT_EQ(Refusal("127.0.0.1", file), 0);
  EXPECT_EQ(Refusal("10.0.0.7", file), 403);
  EXPECT_EQ(Refusal("10.0.0.7", file, {{"Authorization", "Bearer secret"}}), 0);
  EXPECT_EQ(Refusal("10.0.0.7", file, {{"Authorization", "Bearer secrets"}}), 401);
  EXPECT_EQ(Refusal("10.0.0.7", file, {{"Authorization", "secret"}}), 401);
  EXPECT_EQ(Refusal("127.0.0.1", file, {{"Authorization", "Bearer x"}}), 401);
  EXPECT_EQ(Refusal("10.0.0.7", file, {{"Authorization", "Bearer secret"}, {"Origin", "http://x"}}),
            0);
  std::ofstream(file) << "another";
  EXPECT_EQ(Refusal("10.0.0.7", file, {{"Authorization", "Bearer another"}}), 0) << "read anew";
  EXPECT_EQ(Refusal("10.0.0.7", file + ".none", {{"Authorization", "Bearer another"}}), 503);
  std::ofstream(file) << "two words";
  EXPECT_FALSE(ReadAdminToken(file).ok());
}

TEST(AdminAccess, AnOperatorsCertificateIsEnough) {
  http::Request request;
  request.remote = "10.0.0.9";
  EXPECT_EQ(RefuseAdmin(request, "")->status, 403);
  request.certified = tls::RoleSet{tls::Role::kRouter};
  EXPECT_EQ(RefuseAdmin(request, "")->status, 403);
  request.certified = tls::RoleSet{tls::Role::kOperator};
  EXPECT_FALSE(RefuseAdmin(request, "").has_value());
  request.headers = {{"Origin", "https://elsewhere.example"}};
  EXPECT_EQ(RefuseAdmin(request, "")->status, 403) << "a page in an operator's browser";
}

}  // namespace
}  // namespace skein::services
