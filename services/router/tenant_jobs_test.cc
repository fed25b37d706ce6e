// Files and batches belong to the tenant of the key, and their lines are its requests.
#include <gtest/gtest.h>

#include <cstdlib>

#include "services/base/file.h"
#include "services/router/testing/fake_jobs.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

using scheduler::tenants::Outcome;
using scheduler::tenants::TokenUse;

constexpr char kBoth[] = "tenants: {a: {weight: 5, requests_per_minute: 1, models: [m]}, b: }";
constexpr char kWithoutA[] = "tenants: {b: }";

class TenantJobsTest : public RouterTest {
 protected:
  TenantJobsTest() {
    services_.push_back(&jobs_service_);
    const std::string folder = std::getenv("TEST_TMPDIR");
    edge_options_.api_key_file = folder + "/keys";
    edge_options_.tenants_file = folder + "/tenants.yaml";
    jobs_options_.lines.lines_max = 4;
    jobs_options_.lines.first_pause_us = 1000;
    WriteFiles("ka tenant=a\nka2 tenant=a\nkb tenant=b\n", kBoth);
  }
  void WriteFiles(const std::string& keys, const std::string& tenants) {
    ASSERT_TRUE(WriteFile(edge_options_.api_key_file, keys).ok());
    ASSERT_TRUE(WriteFile(edge_options_.tenants_file, tenants).ok());
  }
  void TearDown() override {
    jobs_service_.Stop();
    RouterTest::TearDown();
  }

  http::Response Send(const std::string& method, const std::string& path, const std::string& key,
                      const std::string& body = "", const std::string& type = "") {
    std::vector<http::Header> headers = {{"Authorization", "Bearer " + key}};
    if (!type.empty()) headers.push_back({"Content-Type", type});
    return http::testing::Fetch(server_->port(), method, path, body, headers);
  }
  http::Response Upload(const std::string& key) {
    const std::string form =
        "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n{}\n\r\n"
        "--x--\r\n";
    return Send("POST", "/v1/files", key, form, "multipart/form-data; boundary=x");
  }

  void StartLines() {
    jobs_->lines().Start();
    ASSERT_TRUE(jobs_service_.Next().has_hello());
    v1::OrchestratorLines lease;
    lease.set_lease_us(30'000'000);
    jobs_service_.Send(lease);
  }
  // What the router says of it.
  v1::RouterLines Run(uint64_t line, const std::string& owner) {
    jobs_service_.GiveLine("batch_1", line, "/v1/completions", R"({"model":"m","prompt":"abcde"})",
                           60'000'000, owner);
    v1::RouterLines message = jobs_service_.Next();
    if (message.has_result()) jobs_service_.Keep(message.result().line());
    return message;
  }

  FakeJobs jobs_service_;
};

TEST_F(TenantJobsTest, AnotherTenantsFilesAndBatchesAreNotThere) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  EXPECT_EQ(Upload("guess").status, 401);
  const http::Response stored = Upload("ka");
  ASSERT_EQ(stored.status, 200) << stored.body;
  const std::string file = "/v1/files/" + Json::parse(stored.body)["id"].get<std::string>();
  EXPECT_EQ(stored.body.find("owner"), std::string::npos);
  const std::string batch = R"({"input_file_id":")" + file.substr(10) +
                            R"(","endpoint":"/v1/completions","completion_window":"24h"})";
  const http::Response refused = Send("POST", "/v1/batches", "kb", batch, "application/json");
  EXPECT_EQ(refused.status, 400) << "as if there were no such file";
  const http::Response made = Send("POST", "/v1/batches", "ka", batch, "application/json");
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string job = "/v1/batches/" + Json::parse(made.body)["id"].get<std::string>();
  const auto count = [this](const std::string& path, const std::string& key) {
    return Json::parse(Send("GET", path, key).body)["data"].size();
  };
  for (const char* path : {"/v1/files", "/v1/batches"}) {
    EXPECT_EQ(count(path, "ka"), 1u);
    EXPECT_EQ(count(path, "ka2"), 1u) << "the tenant's other key";
    EXPECT_EQ(count(path, "kb"), 0u);
  }
  for (const std::string& path : {file, file + "/content", job}) {
    EXPECT_EQ(Send("GET", path, "kb").status, 404) << path;
    EXPECT_EQ(Send("GET", path, "ka2").status, 200) << path;
  }
  EXPECT_EQ(Send("DELETE", file, "kb").status, 404);
  EXPECT_EQ(Send("POST", job + "/cancel", "kb").status, 404);
  EXPECT_EQ(Send("POST", job + "/cancel", "ka").status, 200);
  EXPECT_EQ(Send("DELETE", file, "ka").status, 200);
}

TEST_F(TenantJobsTest, LinesRunAsTheirTenantsAndCountToItsUse) {
  StartRouter([](const v1::RequestSpec&) { return Says("xyz"); });
  StartLines();
  for (uint64_t line = 1; line <= 3; ++line) EXPECT_EQ(Run(line, "a").result().status_code(), 200u);
  const v1::RequestSpec spec = cluster_->specs().back();
  EXPECT_EQ(spec.tenant(), "a");
  EXPECT_EQ(spec.tenant_weight(), 5u);
  const auto state = accounts_->Look("a");
  EXPECT_EQ(state.totals.ended.at(Outcome::kFinished), 3);
  EXPECT_EQ(state.totals.tokens, (TokenUse{15, 9}));
  EXPECT_EQ(state.requests_left, 1) << "lines are not limited";
}

TEST_F(TenantJobsTest, ABatchWaitsWhileItsTenantIsNotInTheFile) {
  StartRouter([](const v1::RequestSpec&) { return Says("xyz"); });
  StartLines();
  ASSERT_TRUE(Run(1, "a").has_result());
  WriteFiles("kb tenant=b\n", kWithoutA);
  ASSERT_TRUE(edge_->ReadKeys().ok());
  for (uint64_t line = 2; line <= 3; ++line) {
    const v1::RouterLines back = Run(line, "a");
    ASSERT_TRUE(back.has_returned()) << back.DebugString();
    EXPECT_EQ(back.returned().line().line(), line);
    EXPECT_EQ(back.returned().why(),
              "the tenant 'a' is not in --tenants-file '" + edge_options_.tenants_file + "'");
  }
  EXPECT_EQ(Run(4, "b").result().status_code(), 200u);
  EXPECT_EQ(Run(5, "").result().status_code(), 200u) << "of the time before there were keys";
  EXPECT_EQ(cluster_->specs().size(), 3u);
  WriteFiles("ka tenant=a\nkb tenant=b\n", kBoth);
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Run(2, "a").result().status_code(), 200u);
}

TEST_F(TenantJobsTest, ATenantThatLeavesTheFileFindsItsFilesWhenItIsBack) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const http::Response stored = Upload("ka");
  ASSERT_EQ(stored.status, 200) << stored.body;
  const std::string file = "/v1/files/" + Json::parse(stored.body)["id"].get<std::string>();
  WriteFiles("kb tenant=b\n", kWithoutA);
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Send("GET", file, "ka").status, 401);
  EXPECT_EQ(Send("GET", file, "kb").status, 404);
  WriteFiles("ka tenant=a\nkb tenant=b\n", kBoth);
  ASSERT_TRUE(edge_->ReadKeys().ok());
  EXPECT_EQ(Send("GET", file, "ka").status, 200);
}

}  // namespace
}  // namespace skein::services::testing
