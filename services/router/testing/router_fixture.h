// A router in this process, over HTTP, in front of a FakeCluster that serves the byte model "m".
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/http/admin.h"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/metrics/metrics.h"
#include "services/router/access/accounts.h"
#include "services/router/access/audit_log.h"
#include "services/router/api/api.h"
#include "services/router/api/edge.h"
#include "services/router/jobs/offline_jobs.h"
#include "services/router/testing/byte_model.h"
#include "services/router/testing/fake_cluster.h"

namespace skein::services::testing {

using Json = nlohmann::ordered_json;
using http::testing::MakeRequest;
using http::testing::RawClient;

class RouterTest : public ::testing::Test {
 protected:
  void StartRouter(FakeCluster::ScriptFn script, scheduler::RouterConfig core = {},
                   http::ServerOptions http_options = {}) {
    cluster_ = std::make_unique<FakeCluster>("m", std::move(script), 0, services_);
    core.resume_wait_us = resume_wait_us_;
    models_.Add(model_ != nullptr ? std::move(model_) : MakeByteModel("m", max_positions_));
    shell_ = std::make_unique<RouterShell>(RouterShellOptions{core, {cluster_->endpoint()}, 7});
    shell_->Start();
    shell_->Join({});
    watch_ = std::make_unique<ModelWatch>(&shell_->channels(),
                                          std::vector<std::string>{cluster_->endpoint()},
                                          std::vector<std::string>{"m"});
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!watch_->Ready().ok() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    api_options_.max_streams = core.max_streams;
    api_options_.max_queued = core.max_queued;
    if (!edge_options_.api_key_file.empty() || audit_ != nullptr) {
      accounts_ = std::make_unique<Accounts>(audit_.get());
      api_options_.accounts = edge_options_.accounts = accounts_.get();
    }
    api_ = std::make_unique<RouterApi>(api_options_, &models_, shell_.get(), watch_.get(),
                                       &router_metrics_);
    api_->AddRoutes(&routes_);
    StartJobs();
    http::AddAdminPages({.service = "router",
                         .version = "0",
                         .ready = [this] { return watch_->Ready(); },
                         .metrics = [this] { return metrics_.Render(); }},
                        &routes_);
    auto edge = Edge::Create(edge_options_, &routes_, &router_metrics_);
    ASSERT_TRUE(edge.ok()) << edge.status();
    edge_ = *std::move(edge);
    http_options.planned_bytes_max = jobs_->files().body_bytes_max();
    http_options.plan_body = [this, most = http_options.body_bytes_max](const http::Request& head) {
      if (!FilesApi::IsUpload(head)) return http::BodyPlan{.bytes_max = most};
      http::Request asked = head;
      if (auto refusal = edge_->Admit(&asked)) return http::BodyPlan{.refusal = std::move(refusal)};
      return jobs_->files().PlanBody(asked);
    };
    http_options.complete = [this](const http::Request& request, http::Response* response) {
      edge_->Complete(request, response);
    };
    auto server = http::Server::Start(http_options, [this](http::Request request, auto responder) {
      edge_->Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
  }

  void TearDown() override {
    const absl::Status invariants =
        shell_ == nullptr ? absl::UnavailableError("it did not start") : shell_->CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    if (accounts_ != nullptr) {
      EXPECT_EQ(accounts_->CheckInvariants(), "");
    }
    server_.reset();
    jobs_.reset();
    api_.reset();
    watch_.reset();
    shell_.reset();
    cluster_.reset();
  }

  // The routes of files and batches, and the lines that this router computes.
  void StartJobs() {
    jobs_options_.client.orchestrators = cluster_->endpoint();
    jobs_options_.lines.router = 7;
    if (!edge_options_.api_key_file.empty()) {
      jobs_options_.lines.caller = [this](const std::string& owner) {
        return edge_->access().CallerOfTenant(owner);
      };
    }
    jobs_ = std::make_unique<OfflineJobs>(
        jobs_options_, &shell_->channels(),
        [this](const http::Request& request, const std::shared_ptr<http::Responder>& responder,
               int64_t within_us) { api_->RunLine(request, responder, within_us); },
        &router_metrics_, &metrics_);
    jobs_->AddRoutes(&routes_);
  }

  http::Response Post(const std::string& path, const Json& body,
                      const std::vector<http::Header>& headers = {}) {
    return http::testing::Fetch(server_->port(), "POST", path, body.dump(), headers);
  }

  // The answer to a POST that must succeed.
  Json Ask(const std::string& path, const Json& body) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body, nullptr, false);
  }

  // The events of a streamed answer, the last one "[DONE]" checked and left out.
  static std::vector<Json> Events(const std::string& body) {
    std::vector<Json> events;
    size_t at = 0;
    bool done = false;
    for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const std::string line = body.substr(at, end - at);
      EXPECT_EQ(line.substr(0, 6), "data: ");
      EXPECT_FALSE(done);
      done = line == "data: [DONE]";
      if (!done) events.push_back(Json::parse(line.substr(6)));
    }
    EXPECT_TRUE(done) << body;
    EXPECT_EQ(at, body.size());
    return events;
  }

  std::vector<Json> Stream(const std::string& path, Json body) {
    body["stream"] = true;
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(http::FindHeader(response.headers, "Content-Type"),
              "text/event-stream; charset=utf-8");
    return Events(response.body);
  }

  // Before StartRouter.
  int64_t max_positions_ = 200;
  scheduler::TimeUs resume_wait_us_ = 0;  // a client hears of the first loss
  std::unique_ptr<ServedModel> model_;    // named "m"; null: the byte model
  RouterApiOptions api_options_;
  EdgeOptions edge_options_;
  std::vector<grpc::Service*> services_;  // of the cluster's server besides its own
  OfflineJobsOptions jobs_options_;
  std::unique_ptr<AuditLog> audit_;  // null: there is none
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<FakeCluster> cluster_;
  Models models_;
  Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  std::unique_ptr<RouterShell> shell_;
  std::unique_ptr<ModelWatch> watch_;
  std::unique_ptr<RouterApi> api_;
  std::unique_ptr<OfflineJobs> jobs_;
  http::Routes routes_;
  std::unique_ptr<Edge> edge_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace skein::services::testing
