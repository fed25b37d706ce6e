// http_requests_total and http_request_duration_seconds, as the instrumentation of vLLM's API
// server exposes them: by route, method and class of status. Probes and /metrics are not counted.
#pragma once

#include <memory>
#include <string>

#include "services/http/responder.h"
#include "services/metrics/metrics.h"

namespace skein::services {

// Any thread. Label values do not come from clients: a route that is not served is "none", a method
// that HTTP does not know is "other".
class HttpMetrics {
 public:
  // `metrics` outlives every responder that Watched gives.
  explicit HttpMetrics(Metrics* metrics) : metrics_(metrics) {}

  // A responder that passes everything on to `responder`, and counts the answer when it ends: in
  // full, or because the client has gone (499) or the server stops (503). `route`: as it was added,
  // empty for none.
  std::shared_ptr<http::Responder> Watched(const http::Request& request, const std::string& route,
                                           std::shared_ptr<http::Responder> responder);

 private:
  Metrics* const metrics_;
};

}  // namespace skein::services
