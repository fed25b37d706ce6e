// Metrics of offline jobs (docs/metrics.md).
#pragma once

#include <cstdint>
#include <optional>

#include "services/jobs/job_shell.h"
#include "services/metrics/metrics.h"

namespace skein::services {

// Empty: jobs are turned off, or the process stops; all series are there all the same. `now_s`:
// seconds since 1970.
void SetJobMetrics(const std::optional<JobFigures>& figures, int64_t now_s, Metrics* metrics);

}  // namespace skein::services
