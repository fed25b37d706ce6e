// What operators see of tenants, and who may.
#include "services/router/access/tenant_admin.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "nlohmann/json.hpp"
#include "services/base/file.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

class TenantAdminTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = std::getenv("TEST_TMPDIR");
    admin_keys_ = folder + "/admin_keys";
    ASSERT_TRUE(WriteFile(admin_keys_, KeyLine("operator") + "\n").ok());
    ASSERT_TRUE(WriteFile(folder + "/keys", "client tenant=a id=k1\nother\n").ok());
    ASSERT_TRUE(WriteFile(folder + "/tenants",
                          "tenants: {a: {tokens_per_minute: 1000, weight: 2}, default: }")
                    .ok());
    access_ = std::make_unique<Access>(
        AccessOptions{.key_file = folder + "/keys", .tenants_file = folder + "/tenants"});
    ASSERT_TRUE(access_->Read().ok());
    accounts_.SetLimits(access_->tenants());
    auto admin = TenantAdmin::Open(admin_keys_, {.look =
                                                     [this](const auto& look) {
                                                       if (ready_) look(*access_, &accounts_);
                                                       return ready_;
                                                     },
                                                 .reload = [this] { return reload_; }});
    ASSERT_TRUE(admin.ok()) << admin.status();
    admin_ = *std::move(admin);
    admin_->AddRoutes(&routes_);
    auto server = http::Server::Start({}, [this](http::Request request, auto responder) {
      routes_.Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
  }

  http::Response Ask(const char* method, const char* path, const std::string& key) {
    std::vector<http::Header> headers;
    if (!key.empty()) headers.push_back({"Authorization", "Bearer " + key});
    return http::testing::Fetch(server_->port(), method, path, {}, headers);
  }

  std::string admin_keys_;
  bool ready_ = true;
  std::optional<absl::Status> reload_ = absl::OkStatus();
  std::unique_ptr<Access> access_;
  Accounts accounts_{nullptr};
  std::unique_ptr<TenantAdmin> admin_;
  http::Routes routes_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(TenantAdminTest, OperatorsSeeLimitsKeysAndUse) {
  http::Request request;
  auto caller = std::make_shared<Caller>();
  caller->tenant = "a";
  request.caller = caller;
  std::optional<scheduler::tenants::Excess> excess;
  auto charge = accounts_.Begin(request, &excess);
  charge->End(scheduler::tenants::Outcome::kFinished, 200, "", {7, 3});
  const http::Response all = Ask("GET", "/admin/tenants", "operator");
  ASSERT_EQ(all.status, 200) << all.body;
  EXPECT_EQ(Json::parse(all.body)["routers"], 1);
  const Json tenants = Json::parse(all.body)["tenants"];
  ASSERT_EQ(tenants.size(), 2u);
  EXPECT_EQ(tenants[0]["name"], "a");
  EXPECT_EQ(tenants[0]["keys"], Json({"k1"}));
  EXPECT_EQ(tenants[0]["weight"], 2);
  EXPECT_EQ(tenants[0]["limits"]["tokens_per_minute"], 1000);
  EXPECT_EQ(tenants[0]["limits"]["concurrency"], nullptr);
  EXPECT_EQ(tenants[0]["used"]["prompt_tokens"], 7);
  EXPECT_EQ(tenants[0]["used"]["output_tokens"], 3);
  EXPECT_EQ(tenants[0]["used"]["requests"]["finished"], 1);
  const http::Response one = Ask("GET", "/admin/tenants/default", "operator");
  ASSERT_EQ(one.status, 200);
  EXPECT_EQ(Json::parse(one.body)["keys"].size(), 1u);
  EXPECT_EQ(Ask("GET", "/admin/tenants/nobody", "operator").status, 404);
}

TEST_F(TenantAdminTest, NobodyElseSeesThem) {
  for (const char* path : {"/admin/tenants", "/admin/tenants/a"}) {
    EXPECT_EQ(Ask("GET", path, "").status, 401);
    EXPECT_EQ(Ask("GET", path, "client").status, 401) << "a client's key";
  }
  EXPECT_EQ(Ask("POST", "/admin/reload", "").status, 401);
  http::Response last;
  for (int i = 0; i < 20 && last.status != 429; ++i) last = Ask("GET", "/admin/tenants", "guess");
  EXPECT_EQ(last.status, 429);
  EXPECT_EQ(Json::parse(last.body)["error"]["code"], "too_many_wrong_keys");
}

TEST_F(TenantAdminTest, AReloadThatFailsSaysWhy) {
  EXPECT_EQ(Ask("POST", "/admin/reload", "operator").status, 200);
  reload_ = absl::InvalidArgumentError("--tenants-file: line 3");
  const http::Response failed = Ask("POST", "/admin/reload", "operator");
  EXPECT_EQ(failed.status, 409);
  EXPECT_NE(failed.body.find("--tenants-file: line 3"), std::string::npos);
  reload_ = std::nullopt;
  ready_ = false;
  EXPECT_EQ(Ask("POST", "/admin/reload", "operator").status, 503);
  EXPECT_EQ(Ask("GET", "/admin/tenants", "operator").status, 503);
}

TEST_F(TenantAdminTest, ARevokedOperatorsKeyIsNone) {
  ASSERT_TRUE(WriteFile(admin_keys_, "another\n").ok());
  ASSERT_TRUE(admin_->ReadKeys().ok());
  EXPECT_EQ(Ask("GET", "/admin/tenants", "operator").status, 401);
  EXPECT_EQ(Ask("GET", "/admin/tenants", "another").status, 200);
  EXPECT_NE(TenantAdmin::Open("/no/such/file", {}).status().message().find("--admin-key-file"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace skein::services
