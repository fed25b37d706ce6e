// The OpenMetrics text format 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/), which
// has exemplars; prometheus-cpp writes Prometheus's own format only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prometheus/metric_family.h"
#include "services/metrics/exemplars.h"

namespace skein::services {

inline constexpr char kOpenMetricsType[] =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

// Whether a scraper's Accept header takes OpenMetrics; one that prefers another format by its q
// values does not.
bool AcceptsOpenMetrics(std::string_view accept);

// Ends with "# EOF". A counter whose name does not end with _total is of unknown type, as the
// format has no counters of other names.
std::string OpenMetricsText(const std::vector<prometheus::MetricFamily>& families,
                            const Exemplars& exemplars);

}  // namespace skein::services
