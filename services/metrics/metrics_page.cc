#include "services/metrics/metrics_page.h"

#include "services/metrics/open_metrics.h"

namespace skein::services {

http::Response MetricsPage(const http::Request& request,
                           const std::function<std::string(Metrics::Format)>& render) {
  const bool open = AcceptsOpenMetrics(request.Get("Accept"));
  http::Response response;
  response.content_type = open ? kOpenMetricsType : "text/plain; version=0.0.4; charset=utf-8";
  response.headers.push_back({"Vary", "Accept"});
  response.body = render(open ? Metrics::Format::kOpenMetrics : Metrics::Format::kPrometheus);
  return response;
}

}  // namespace skein::services
