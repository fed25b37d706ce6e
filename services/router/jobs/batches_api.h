// OpenAI's /v1/batches: create, list, retrieve, cancel.
#pragma once

#include <functional>
#include <memory>

#include "services/http/routes.h"
#include "services/router/jobs/jobs_client.h"
#include "services/router/router_metrics.h"

namespace skein::services {

struct BatchesApiOptions {
  bool strict = false;  // unknown parameters are errors
  std::function<bool()> draining = [] { return false; };
};

class BatchesApi {
 public:
  // Both outlive it.
  BatchesApi(BatchesApiOptions options, JobsClient* jobs, RouterMetrics* metrics);

  void AddRoutes(http::Routes* routes);

 private:
  using ResponderPtr = std::shared_ptr<http::Responder>;

  void Create(const http::Request& request, const ResponderPtr& responder);
  void List(const http::Request& request, const ResponderPtr& responder);
  void Retrieve(const http::Request& request, const ResponderPtr& responder);
  void Cancel(const http::Request& request, const ResponderPtr& responder);
  void RefuseCancel(const v1::JobId& asked, const ResponderPtr& responder);

  const BatchesApiOptions options_;
  JobsClient* const jobs_;
  RouterMetrics* const metrics_;
};

}  // namespace skein::services
