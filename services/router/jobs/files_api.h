// OpenAI's /v1/files: upload, list, retrieve, content, delete. The leading orchestrator keeps the
// files; nothing of them stays here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "services/http/body_sink.h"
#include "services/http/byte_budget.h"
#include "services/http/routes.h"
#include "services/router/jobs/jobs_client.h"

namespace skein::services {

struct FilesApiOptions {
  size_t file_bytes_max = 200'000'000;  // OpenAI's limit of a batch's input
  // What uploads hold is taken out of it; null: there is no bound.
  std::shared_ptr<http::ByteBudget> bodies = nullptr;
  std::function<bool()> draining = [] { return false; };
};

class FilesApi {
 public:
  // `jobs` outlives it.
  FilesApi(FilesApiOptions options, JobsClient* jobs);

  void AddRoutes(http::Routes* routes);

  // The bodies of uploads are longer than others, and go to the orchestrator while they arrive.
  static bool IsUpload(const http::Request& head);
  size_t body_bytes_max() const { return options_.file_bytes_max + kFormBytesMax; }
  // REQUIRES: IsUpload, and the client may upload; `caller` is set.
  http::BodyPlan PlanBody(const http::Request& head) const;

  static constexpr int64_t kExpiresAfterS = 30 * 86400;  // where the client says nothing; OpenAI's

 private:
  static constexpr size_t kFormBytesMax = 64 << 10;  // of an upload besides its content
  using ResponderPtr = std::shared_ptr<http::Responder>;

  void List(const http::Request& request, const ResponderPtr& responder);
  void Retrieve(const http::Request& request, const ResponderPtr& responder);
  void Delete(const http::Request& request, const ResponderPtr& responder);

  const FilesApiOptions options_;
  JobsClient* const jobs_;
};

}  // namespace skein::services
