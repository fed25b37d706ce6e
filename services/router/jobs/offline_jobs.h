// A router's part in offline jobs: the API of files and batches, and the lines that it computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "services/http/body_sink.h"
#include "services/http/routes.h"
#include "services/router/jobs/batches_api.h"
#include "services/router/jobs/files_api.h"
#include "services/router/jobs/jobs_client.h"
#include "services/router/jobs/line_runner.h"

namespace skein::services {

struct OfflineJobsOptions {
  JobsClientOptions client;
  FilesApiOptions files;
  BatchesApiOptions batches;
  LineRunnerOptions lines;
};

class OfflineJobs {
 public:
  // All outlive it.
  OfflineJobs(const OfflineJobsOptions& options, Channels* channels, LineRunner::Answer answer,
              RouterMetrics* router_metrics, Metrics* metrics)
      : client_(options.client, channels),
        files_(options.files, &client_),
        batches_(options.batches, &client_, router_metrics),
        lines_(options.lines, &client_, std::move(answer), metrics) {}
  ~OfflineJobs() {
    lines_.Stop();
    client_.Stop();
  }

  void AddRoutes(http::Routes* routes) {
    files_.AddRoutes(routes);
    batches_.AddRoutes(routes);
  }
  const FilesApi& files() const { return files_; }
  LineRunner& lines() { return lines_; }

 private:
  JobsClient client_;
  FilesApi files_;
  BatchesApi batches_;
  LineRunner lines_;
};

}  // namespace skein::services
