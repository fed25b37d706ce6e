// Tenants over HTTP: nobody uses another's budget, and what each has used adds up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "scheduler/vocabulary/mix64.h"
#include "services/base/file.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

using http::FindHeader;
using scheduler::tenants::Limit;
using scheduler::tenants::Outcome;
using scheduler::tenants::TenantState;

class TenantsTest : public RouterTest {
 protected:
  TenantsTest() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    edge_options_.api_key_file = folder_ + "/keys";
    edge_options_.tenants_file = folder_ + "/tenants.yaml";
  }

  void Write(const std::string& keys, const std::string& tenants) {
    ASSERT_TRUE(WriteFile(edge_options_.api_key_file, keys).ok());
    ASSERT_TRUE(WriteFile(edge_options_.tenants_file, tenants).ok());
  }
  void OpenAudit() {
    auto log = AuditLog::Open({.path = folder_ + "/audit"});
    ASSERT_TRUE(log.ok()) << log.status();
    audit_ = *std::move(log);
  }
  std::vector<Json> AuditLines() {
    audit_->Flush();
    std::vector<Json> lines;
    std::istringstream text(*ReadFile(folder_ + "/audit"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  static std::vector<http::Header> With(const std::string& key,
                                        std::vector<http::Header> more = {}) {
    more.push_back({"Authorization", "Bearer " + key});
    return more;
  }
  // A prompt of five tokens and at most `max_tokens` more.
  http::Response Complete(const std::string& key, int max_tokens,
                          const std::vector<http::Header>& more = {}) {
    return Post("/v1/completions",
                {{"model", "m"}, {"prompt", "abcde"}, {"max_tokens", max_tokens}}, With(key, more));
  }
  static std::string HeaderOf(const http::Response& response, const char* name) {
    return std::string(FindHeader(response.headers, name));
  }
  void AwaitRunning(const std::string& tenant, int64_t running) {
    while (accounts_->Look(tenant).running != running) std::this_thread::yield();
  }

  std::string folder_;
};

TEST_F(TenantsTest, TheSpecSaysWhoseRequestItIsAndWhatItWants) {
  Write("gold tenant=a\nbulk tenant=b\n",
        "tenants: {a: {weight: 7, ttft_ms: 500, priority: 3}, b: }");
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  EXPECT_EQ(Complete("gold", 4, {{"x-llm-d-inference-fairness-id", "b"}}).status, 200);
  v1::RequestSpec spec = cluster_->specs().back();
  EXPECT_EQ(spec.tenant(), "a") << "no header makes it another tenant's";
  EXPECT_EQ(spec.tenant_weight(), 7u);
  EXPECT_EQ(spec.ttft_goal_us(), 500'000u);
  EXPECT_EQ(spec.tpot_goal_us(), 0u);
  EXPECT_EQ(spec.priority(), -3);
  EXPECT_EQ(Complete("gold", 4, {{"x-llm-d-slo-ttft-ms", "100"}, {"x-slo-tpot-ms", "9"}}).status,
            200);
  spec = cluster_->specs().back();
  EXPECT_EQ(spec.ttft_goal_us(), 500'000u) << "not more urgent than the tenant";
  EXPECT_EQ(spec.tpot_goal_us(), 9'000u);
  EXPECT_EQ(Complete("bulk", 4, {{"x-smg-tenant-id", "a"}, {"x-slo-ttft-ms", "100"}}).status, 200);
  spec = cluster_->specs().back();
  EXPECT_EQ(spec.tenant(), "b");
  EXPECT_LE(spec.tenant_weight(), 1u);
  EXPECT_EQ(spec.ttft_goal_us(), 100'000u);
  const http::Response refused = Complete("bulk", 4, {{"x-slo-ttft-ms", "soon"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Json::parse(refused.body)["error"]["param"], "x-slo-ttft-ms");
}

TEST_F(TenantsTest, ABudgetOfTokensIsOneForAllKeysOfItsTenantAndForNobodyElse) {
  Write("one tenant=a\ntwo tenant=a\nother tenant=b\n",
        "tenants: {a: {tokens_per_minute: 100}, b: {tokens_per_minute: 100}}");
  StartRouter([](const v1::RequestSpec&) { return Says("xyz"); });
  const http::Response first = Complete("one", 75);  // 80 are reserved, 8 are used
  EXPECT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(HeaderOf(first, "X-RateLimit-Limit-Tokens"), "100");
  EXPECT_EQ(HeaderOf(first, "X-RateLimit-Remaining-Tokens"), "20");
  EXPECT_EQ(HeaderOf(first, "X-RateLimit-Limit-Requests"), "");
  EXPECT_GE(accounts_->Look("a").tokens_left, 92);
  const http::Response large = Complete("one", 96);
  EXPECT_EQ(large.status, 429);
  EXPECT_EQ(HeaderOf(large, "X-Should-Retry"), "false");
  EXPECT_EQ(HeaderOf(large, "Retry-After"), "");
  EXPECT_EQ(Complete("one", 80).status, 200);
  EXPECT_EQ(Complete("two", 70).status, 200);
  EXPECT_EQ(Complete("two", 62).status, 200);
  // Used: 32 of 100; what has come back meanwhile is little.
  for (const char* key : {"one", "two"}) {
    for (const std::vector<http::Header>& headers :
         {std::vector<http::Header>{}, {{"x-smg-tenant-id", "b"}}}) {
      const http::Response refused = Complete(key, 90, headers);
      EXPECT_EQ(refused.status, 429);
      const Json error = Json::parse(refused.body)["error"];
      EXPECT_EQ(error["code"], "rate_limit_exceeded");
      EXPECT_EQ(error["message"].get<std::string>().rfind(
                    "Rate limit reached for tenant 'a' on tokens per minute: limit 100, used ", 0),
                0u)
          << error;
      EXPECT_EQ(HeaderOf(refused, "X-Skein-Exceeded"), "tokens_per_minute");
      EXPECT_EQ(HeaderOf(refused, "X-Skein-Dropped-Reason"), "rejected-tenant-limit");
      EXPECT_GE(std::stoi(HeaderOf(refused, "Retry-After")), 1);
      EXPECT_EQ(HeaderOf(refused, "X-Should-Retry"), "");
    }
  }
  EXPECT_EQ(accounts_->Look("b").tokens_left, 100);
  EXPECT_EQ(Complete("other", 95).status, 200);
  EXPECT_EQ(accounts_->Look("a").totals.over_limits[Limit::kTokens], 5);
}

TEST_F(TenantsTest, RequestsPerMinuteCountWhateverBecomesOfThem) {
  Write("one tenant=a\n", "tenants: {a: {requests_per_minute: 3}}");
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  EXPECT_EQ(Complete("one", 4).status, 200);
  EXPECT_EQ(Post("/v1/completions", {{"model", "none"}, {"prompt", "p"}}, With("one")).status, 404);
  EXPECT_EQ(Post("/tokenize", {{"model", "m"}, {"prompt", "p"}}, With("one")).status, 200);
  const http::Response refused = Complete("one", 4);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(HeaderOf(refused, "X-Skein-Exceeded"), "requests_per_minute");
  EXPECT_EQ(cluster_->specs().size(), 1u);
  // Reading the file again does not reset what was used.
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Complete("one", 4).status, 429);
  Write("one tenant=a\n", "tenants: {a: }");
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Complete("one", 4).status, 200);
}

TEST_F(TenantsTest, RequestsAtATimeEndWithTheirClients) {
  Write("one tenant=a\ntwo tenant=a\nother tenant=b\n", "tenants: {a: {concurrency: 1}, b: }");
  StartRouter([](const v1::RequestSpec& spec) {
    Script script = Says("x");
    script.hold = spec.max_tokens() == 9;
    return script;
  });
  auto held = std::make_unique<RawClient>(server_->port());
  held->Send(MakeRequest("POST", "/v1/completions", R"({"model":"m","prompt":"p","max_tokens":9})",
                         With("one")));
  AwaitRunning("a", 1);
  const http::Response refused = Complete("two", 4);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(HeaderOf(refused, "X-Skein-Exceeded"), "concurrency");
  EXPECT_EQ(Complete("other", 4).status, 200);
  held.reset();
  AwaitRunning("a", 0);
  EXPECT_EQ(Complete("two", 4).status, 200);
  const TenantState state = accounts_->Look("a");
  EXPECT_EQ(state.totals.ended.at(Outcome::kCancelled), 1);
  EXPECT_EQ(state.reserved_tokens, 0);
}

TEST_F(TenantsTest, AModelThatATenantMayNotUseDoesNotExistForIt) {
  Write("one tenant=a\ntwo tenant=b\n", "tenants: {a: {models: [n]}, b: {models: [m]}}");
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const http::Response refused = Complete("one", 4);
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(Json::parse(refused.body)["error"]["message"],
            "The model 'm' does not exist. This router serves none that this API key may use.");
  const auto get = [this](const std::string& path, const std::string& key) {
    return http::testing::Fetch(server_->port(), "GET", path, {}, With(key));
  };
  EXPECT_EQ(get("/v1/models/m", "one").status, 404);
  EXPECT_EQ(get("/v1/models/m", "two").status, 200);
  EXPECT_EQ(Json::parse(get("/v1/models", "one").body)["data"].size(), 0u);
  EXPECT_EQ(Json::parse(get("/v1/models", "two").body)["data"].size(), 1u);
  EXPECT_EQ(Complete("two", 4).status, 200);
}

// Requests that finish, fail, are refused, are over a limit, or whose clients leave: the audit
// log, the metrics and the accounts say the same, and what clients were told.
TEST_F(TenantsTest, WhatWasUsedAddsUpInTheAuditLogTheMetricsAndTheAnswers) {
  OpenAudit();
  Write("ka tenant=a id=key-a\nkb tenant=b id=key-b\n",
        "tenants: {a: {concurrency: 3, tokens_per_minute: 2000}, b: }");
  StartRouter([](const v1::RequestSpec& spec) {
    Script script = Says("abcdefgh");
    const int64_t what = spec.max_tokens() % 5;
    if (what == 1) script.plan = absl::ResourceExhaustedError("full");
    if (what == 2) {
      script.reason = v1::FINISH_REASON_ERROR;
      script.failure = absl::InternalError("broken");
    }
    script.hold = what == 3;
    return script;
  });
  uint64_t state = 20;
  const auto below = [&state](uint64_t n) { return Mix64(state += kMix64Step) % n; };
  std::map<std::string, int64_t> told;  // tokens of finished answers, by tenant
  int64_t asked = 0, left = 0;
  for (int i = 0; i < 120; ++i, ++asked) {
    const std::string tenant = below(2) == 0 ? "a" : "b";
    const int max_tokens = 10 + static_cast<int>(below(5));
    if (max_tokens % 5 == 3) {
      const int64_t before = accounts_->Look(tenant).totals.ended[Outcome::kCancelled];
      RawClient client(server_->port());
      client.Send(MakeRequest("POST", "/v1/completions",
                              R"({"model":"m","prompt":"abcde","stream":true,"max_tokens":13})",
                              With("k" + tenant)));
      if (client.ReadHead().status != 200) continue;  // over a limit
      client.Close();
      while (accounts_->Look(tenant).totals.ended[Outcome::kCancelled] == before) {
        std::this_thread::yield();
      }
      ++left;
      continue;
    }
    const http::Response response = Complete("k" + tenant, max_tokens);
    if (response.status == 200) {
      told[tenant] += Json::parse(response.body)["usage"]["total_tokens"].get<int64_t>();
    }
  }
  EXPECT_GT(left, 0);
  std::map<std::string, std::map<std::string, int64_t>> audited, tokens;  // by tenant
  std::map<std::string, int64_t> finished;
  const std::vector<Json> lines = AuditLines();
  EXPECT_EQ(lines.size(), static_cast<size_t>(asked));
  for (const Json& line : lines) {
    const std::string tenant = line["tenant"], outcome = line["outcome"];
    EXPECT_EQ(line["key"], "key-" + tenant);
    ++audited[tenant][outcome];
    tokens[tenant]["prompt"] += line["prompt_tokens"].get<int64_t>();
    tokens[tenant]["output"] += line["output_tokens"].get<int64_t>();
    if (outcome == "finished") {
      finished[tenant] +=
          line["prompt_tokens"].get<int64_t>() + line["output_tokens"].get<int64_t>();
    }
    if (outcome == "refused") {
      EXPECT_EQ(line["prompt_tokens"], 0);
    }
  }
  EXPECT_EQ(finished, told);
  accounts_->Refresh(&metrics_);
  const std::string text = metrics_.Render();
  for (const std::string tenant : {"a", "b"}) {
    const TenantState of_tenant = accounts_->Look(tenant);
    EXPECT_EQ(of_tenant.running, 0);
    EXPECT_EQ(of_tenant.reserved_tokens, 0);
    EXPECT_EQ(of_tenant.totals.tokens.prompt, tokens[tenant]["prompt"]);
    EXPECT_EQ(of_tenant.totals.tokens.output, tokens[tenant]["output"]);
    for (const std::string kind : {"prompt", "output"}) {
      const std::string line = "skein_tenant_tokens_total{kind=\"" + kind + "\",tenant=\"" +
                               tenant + "\"} " + std::to_string(tokens[tenant][kind]) + "\n";
      EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
    for (const std::string outcome : {"finished", "failed", "cancelled"}) {
      const std::string line = "skein_tenant_requests_total{outcome=\"" + outcome + "\",tenant=\"" +
                               tenant + "\"} " + std::to_string(audited[tenant][outcome]) + "\n";
      EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
  }
}

TEST_F(TenantsTest, TheAuditLogHoldsNoKeyAndNoTextAndClientsCannotMakeLines) {
  OpenAudit();
  Write("sk-secret tenant=a\n", "tenants: {a: }");
  StartRouter([](const v1::RequestSpec&) { return Says("answered"); });
  EXPECT_EQ(Complete("sk-secret", 8, {{"X-Request-Id", "mine"}}).status, 200);
  EXPECT_EQ(Complete("sk-guess", 8).status, 401);
  EXPECT_EQ(Post("/v1/completions", {{"model", "x\n{\"tenant\":\"b\"}"}, {"prompt", "p"}},
                 With("sk-secret"))
                .status,
            404);
  const std::vector<Json> lines = AuditLines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["request_id"], "mine");
  EXPECT_EQ(lines[0]["model"], "m");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[1]["code"], "model_not_found");
  const std::string text = *ReadFile(folder_ + "/audit");
  for (const char* secret : {"sk-", "answered", "abcde"}) {
    EXPECT_EQ(text.find(secret), std::string::npos) << text;
  }
}

TEST(AccountsTest, FurtherTenantsThanSeriesAreCountedTogether) {
  Accounts accounts(nullptr);
  Tenants tenants;
  for (size_t i = 0; i < Accounts::kLabelsMax + 5; ++i) tenants["t" + std::to_string(i)];
  accounts.SetLimits(tenants);
  Metrics metrics;
  accounts.Refresh(&metrics);
  const std::string text = metrics.Render();
  size_t series = 0;
  for (size_t at = 0; (at = text.find("skein_tenant_running{", at)) != std::string::npos; ++at) {
    ++series;
  }
  EXPECT_EQ(series, Accounts::kLabelsMax + 1);
  EXPECT_NE(text.find("skein_tenant_running{tenant=\"other\"}"), std::string::npos);
}

}  // namespace
}  // namespace skein::services::testing
