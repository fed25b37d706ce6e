// GET /metrics of a process whose histograms have exemplars: OpenMetrics for scrapers that accept
// it, else Prometheus's text format.
#pragma once

#include <functional>
#include <string>

#include "services/http/message.h"
#include "services/metrics/metrics.h"

namespace skein::services {

http::Response MetricsPage(const http::Request& request,
                           const std::function<std::string(Metrics::Format)>& render);

}  // namespace skein::services
