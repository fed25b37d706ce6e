// UploadForm: the body of POST /v1/files on its way in. Reads the form while it arrives and passes
// the file in it on to the orchestrator.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "services/http/body_sink.h"
#include "services/http/byte_budget.h"
#include "services/http/multipart.h"
#include "services/openai/api_error.h"
#include "services/router/jobs/client_upload.h"

namespace skein::services {

class UploadForm : public http::BodySink {
 public:
  // `jobs` outlives it. `owner`: whose the file will be. `held`: what it holds is taken of; may be
  // null.
  UploadForm(JobsClient* jobs, std::string_view boundary, std::string owner, size_t file_bytes_max,
             std::shared_ptr<http::ByteBudget::Lease> held);
  ~UploadForm() override;

  void Start(std::function<void()> room) override;
  bool Take(std::string_view bytes) override;

  // The body is complete. `done` runs once: with the file, or with what the client is told.
  using Done = std::function<void(const openai::MaybeError&, const v1::StoredFile&)>;
  void Finish(Done done);

 private:
  void BeginPart(http::FormPart part);
  void AddContent(std::string_view bytes);
  void EndPart();
  void Fail(openai::ApiError error);
  // What is known of the file so far.
  v1::StoredFile Header(int64_t expires_after_s) const;

  JobsClient* const jobs_;
  const std::string owner_;
  const size_t file_bytes_max_;
  const std::shared_ptr<http::ByteBudget::Lease> held_;
  const std::string id_;
  const int64_t now_s_;
  http::MultipartReader reader_;
  std::shared_ptr<ClientUpload> upload_;
  std::map<std::string, std::string> fields_;
  std::string part_;      // the name of the part that is read
  std::string filename_;  // of the file
  size_t file_bytes_ = 0;
  bool in_file_ = false, has_file_ = false, room_ = true, finished_ = false;
  openai::MaybeError error_;  // the first one; what comes after it is dropped
};

}  // namespace skein::services
