// The API of files and batches over HTTP, in front of a FakeJobs, without the rest of a router.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/http/server.h"
#include "services/http/testing/raw_client.h"
#include "services/metrics/metrics.h"
#include "services/router/jobs/offline_jobs.h"
#include "services/router/testing/fake_jobs.h"
#include "services/rpc/rpc.h"

namespace skein::services::testing {

class JobsTest : public ::testing::Test {
 protected:
  using Json = nlohmann::ordered_json;

  // `answer`: what computes lines; the runner is started by the test, if at all.
  void StartJobs(LineRunner::Answer answer = {}) {
    auto rpc = ServeRpc("127.0.0.1:0", {&service_});
    ASSERT_TRUE(rpc.ok());
    rpc_ = *std::move(rpc);
    options_.client.orchestrators = "127.0.0.1:" + std::to_string(rpc_.port);
    jobs_ = std::make_unique<OfflineJobs>(options_, &channels_, std::move(answer), &router_metrics_,
                                          &metrics_);
    jobs_->AddRoutes(&routes_);
    http::ServerOptions http_options;
    http_options.planned_bytes_max = jobs_->files().body_bytes_max();
    http_options.plan_body = [this](const http::Request& head) {
      return FilesApi::IsUpload(head) ? jobs_->files().PlanBody(head)
                                      : http::BodyPlan{.bytes_max = 8 << 20};
    };
    auto server = http::Server::Start(http_options, [this](http::Request request, auto responder) {
      routes_.Serve(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
  }

  void TearDown() override {
    server_.reset();
    service_.Stop();
    jobs_.reset();
    if (rpc_.server == nullptr) return;
    rpc_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    rpc_.server->Wait();
  }

  http::Response Call(const char* method, const std::string& path, const std::string& body = {},
                      const std::vector<http::Header>& headers = {}) {
    return http::testing::Fetch(server_->port(), method, path, body, headers);
  }
  static Json ErrorOf(const http::Response& response) {
    return Json::parse(response.body, nullptr, false)["error"];
  }

  FakeJobs service_;
  OfflineJobsOptions options_;  // before StartJobs
  Channels channels_;
  Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  RpcServer rpc_;
  std::unique_ptr<OfflineJobs> jobs_;
  http::Routes routes_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace skein::services::testing
