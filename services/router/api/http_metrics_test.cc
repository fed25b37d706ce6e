#include "services/router/api/http_metrics.h"

#include <gtest/gtest.h>

#include <utility>

namespace skein::services {
namespace {

class Sink : public http::Responder {
 public:
  void Send(http::Response response) override { sent = response.status; }
  void StartStream(http::Response) override {}
  bool Write(std::string) override { return true; }
  void Finish() override {}
  void Abort() override {}
  void Watch(std::function<void(http::Gone)> gone, std::function<void()>) override {
    leave = std::move(gone);
  }

  int sent = 0;
  std::function<void(http::Gone)> leave;
};

class HttpMetricsTest : public ::testing::Test {
 protected:
  std::shared_ptr<http::Responder> Watched(const std::string& method, const std::string& route) {
    http::Request request;
    request.method = method;
    return http_.Watched(request, route, sink_);
  }
  bool Has(const std::string& series) {
    return metrics_.Render().find(series + "\n") != std::string::npos;
  }

  Metrics metrics_;
  HttpMetrics http_{&metrics_};
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

TEST_F(HttpMetricsTest, AWholeAnswerIsCountedBeforeItsClientHasIt) {
  const auto responder = Watched("POST", "/v1/completions");
  http::Response response;
  response.status = 200;
  responder->Send(std::move(response));
  EXPECT_EQ(sink_->sent, 200);
  const char* series = "{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 1";
  EXPECT_TRUE(Has(std::string("http_requests_total") + series));
  EXPECT_TRUE(
      Has("http_request_duration_seconds_count"
          "{handler=\"/v1/completions\",method=\"POST\"} 1"));
}

TEST_F(HttpMetricsTest, AStreamIsCountedOnceAtItsEnd) {
  {
    const auto responder = Watched("POST", "/v1/completions");
    http::Response head;
    head.status = 200;
    responder->StartStream(std::move(head));
    EXPECT_EQ(metrics_.Render().find("http_requests_total"), std::string::npos);
    responder->Finish();
  }
  EXPECT_TRUE(
      Has("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 1"));
}

TEST_F(HttpMetricsTest, AClientThatLeavesIsCountedOnceAndStillHeardOf) {
  bool heard = false;
  {
    const auto responder = Watched("POST", "/v1/completions");
    responder->Watch([&heard](http::Gone) { heard = true; }, {});
    sink_->leave(http::Gone::kClient);
  }
  EXPECT_TRUE(heard);
  EXPECT_TRUE(
      Has("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 1"));
  EXPECT_EQ(metrics_.Render().find("5xx"), std::string::npos);
}

TEST_F(HttpMetricsTest, NoLabelComesFromAClient) {
  Watched("BREW", "")->Send({});
  EXPECT_NE(metrics_.Render().find("{handler=\"none\",method=\"other\""), std::string::npos);
}

TEST_F(HttpMetricsTest, ProbesAreNotCounted) {
  EXPECT_EQ(Watched("GET", "/metrics"), sink_);
  EXPECT_EQ(Watched("GET", "/readyz"), sink_);
}

}  // namespace
}  // namespace skein::services
