#include "services/router/api/http_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "services/shell/loop.h"

namespace skein::services {
namespace {

constexpr std::array<std::string_view, 8> kProbes = {
    "/metrics", "/health", "/livez", "/readyz", "/ping", "/version", "/load", "/debug/invariants"};
constexpr std::array<std::string_view, 9> kMethods = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};

template <size_t n>
bool Has(const std::array<std::string_view, n>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

const std::vector<double>& DurationBuckets() {
  static const std::vector<double> buckets = {0.1, 0.5, 1};
  return buckets;
}

// One request; counts itself once.
class Meter {
 public:
  Meter(Metrics* metrics, std::string method, std::string handler)
      : metrics_(metrics),
        method_(std::move(method)),
        handler_(std::move(handler)),
        started_us_(MonotonicUs()) {}

  void Count(int status) {
    if (counted_.exchange(true)) return;
    const std::string status_class = std::to_string(status / 100) + "xx";
    metrics_
        ->Counter("http_requests_total", "HTTP requests answered.",
                  {{"handler", handler_}, {"method", method_}, {"status", status_class}})
        .Increment();
    metrics_
        ->Histogram("http_request_duration_seconds",
                    "From an HTTP request's arrival to the end of its answer.", DurationBuckets(),
                    {{"handler", handler_}, {"method", method_}})
        .Observe(static_cast<double>(MonotonicUs() - started_us_) * 1e-6);
  }

 private:
  Metrics* const metrics_;
  const std::string method_;
  const std::string handler_;
  const int64_t started_us_;
  std::atomic<bool> counted_{false};
};

class MeteredResponder : public http::Responder {
 public:
  MeteredResponder(std::shared_ptr<Meter> meter, std::shared_ptr<http::Responder> inner)
      : meter_(std::move(meter)), inner_(std::move(inner)) {}
  // Dropped unanswered: the server answers 500.
  ~MeteredResponder() override { meter_->Count(status_); }

  // Counted before the client is told, so that it finds itself counted.
  void Send(http::Response response) override {
    meter_->Count(response.status);
    inner_->Send(std::move(response));
  }
  void StartStream(http::Response head) override {
    status_ = head.status;
    inner_->StartStream(std::move(head));
  }
  bool Write(std::string piece) override { return inner_->Write(std::move(piece)); }
  void Finish() override {
    meter_->Count(status_);
    inner_->Finish();
  }
  void Abort() override {
    meter_->Count(status_);
    inner_->Abort();
  }
  void Watch(std::function<void(http::Gone)> gone, std::function<void()> drained) override {
    inner_->Watch(
        [meter = meter_, gone = std::move(gone)](http::Gone why) {
          meter->Count(why == http::Gone::kStopped ? 503 : 499);
          if (gone) gone(why);
        },
        std::move(drained));
  }

 private:
  const std::shared_ptr<Meter> meter_;
  const std::shared_ptr<http::Responder> inner_;
  int status_ = 500;
};

}  // namespace

std::shared_ptr<http::Responder> HttpMetrics::Watched(const http::Request& request,
                                                      const std::string& route,
                                                      std::shared_ptr<http::Responder> responder) {
  if (Has(kProbes, route)) return responder;
  auto meter =
      std::make_shared<Meter>(metrics_, Has(kMethods, request.method) ? request.method : "other",
                              route.empty() ? "none" : route);
  return std::make_shared<MeteredResponder>(std::move(meter), std::move(responder));
}

}  // namespace skein::services
