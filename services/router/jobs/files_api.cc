#include "services/router/jobs/files_api.h"

#include <algorithm>
#include <utility>

#include "services/http/multipart.h"
#include "services/router/api/api_error_map.h"
#include "services/router/jobs/client_download.h"
#include "services/router/jobs/job_objects.h"
#include "services/router/jobs/list_query.h"
#include "services/router/jobs/owner.h"
#include "services/router/jobs/upload_form.h"

namespace skein::services {
namespace {

constexpr char kPath[] = "/v1/files";
constexpr char kContent[] = "/content";
constexpr size_t kUploadBytes = 2 * ClientUpload::kBufferBytes;  // that one holds, at most
constexpr int64_t kListMax = 10'000;

v1::FileId FileIdOf(const http::Request& request) {
  v1::FileId out;
  out.set_id(IdIn(request, kPath, kContent));
  SetOwner(request, &out);
  return out;
}

const openai::ApiError kNoForm = {
    415,
    "The request body must be a form: 'Content-Type: multipart/form-data' with a boundary, sent as "
    "it is.",
    "", "unsupported_media_type"};
const openai::ApiError kNoRoom = {
    429,
    "The server's limit for bytes held by all requests (--max-held-bytes) is reached. Retry later.",
    "", "rate_limit_exceeded"};

}  // namespace

FilesApi::FilesApi(FilesApiOptions options, JobsClient* jobs)
    : options_(std::move(options)), jobs_(jobs) {}

void FilesApi::AddRoutes(http::Routes* routes) {
  routes->Add("POST", kPath, [](const http::Request& request, const ResponderPtr& responder) {
    // Without a plan for bodies nothing takes them; the server of a router has one.
    auto form = std::dynamic_pointer_cast<UploadForm>(request.sink);
    if (form == nullptr) return responder->Send(ToResponse(kNoForm));
    // Until the end, `form` lives for its callback.
    form->Finish([form, responder](const openai::MaybeError& error, const v1::StoredFile& file) {
      responder->Send(error ? ToResponse(*error) : JsonAnswer(FileBody(file)));
    });
  });
  const auto add = [this, routes](const char* method, const char* path, auto handle) {
    routes->Add(method, path,
                [this, handle](const http::Request& request, const ResponderPtr& responder) {
                  (this->*handle)(request, responder);
                });
  };
  add("GET", kPath, &FilesApi::List);
  add("GET", "/v1/files/*", &FilesApi::Retrieve);
  add("DELETE", "/v1/files/*", &FilesApi::Delete);
  routes->Add("GET", "/v1/files/*/content",
              [this](const http::Request& request, const ResponderPtr& responder) {
                const std::string id = IdIn(request, kPath, kContent);
                ClientDownload::Begin(
                    jobs_, FileIdOf(request), responder, [id, responder](const auto& status) {
                      responder->Send(ToResponse(JobsError(status, NoSuchFile(id, "id", 404))));
                    });
              });
}

bool FilesApi::IsUpload(const http::Request& head) {
  return head.method == "POST" && head.path == kPath;
}

http::BodyPlan FilesApi::PlanBody(const http::Request& head) const {
  const auto refuse = [](const openai::ApiError& error) {
    return http::BodyPlan{.refusal = ToResponse(error)};
  };
  if (options_.draining()) return refuse(Draining());
  const std::string boundary = http::BoundaryOf(head.Get("Content-Type"));
  const std::string_view coding = head.Get("Content-Encoding");
  if (boundary.empty() || (!coding.empty() && coding != "identity")) return refuse(kNoForm);
  std::shared_ptr<http::ByteBudget::Lease> held;
  if (options_.bodies != nullptr) {
    held = std::make_shared<http::ByteBudget::Lease>(options_.bodies);
    if (!held->Resize(kUploadBytes)) return refuse(kNoRoom);
  }
  const std::string owner = head.caller == nullptr ? "" : head.caller->tenant;
  return {.bytes_max = body_bytes_max(),
          .sink = std::make_shared<UploadForm>(jobs_, boundary, owner, options_.file_bytes_max,
                                               std::move(held))};
}

void FilesApi::List(const http::Request& request, const ResponderPtr& responder) {
  ListQuery query;
  if (auto error = ParseListQuery(request.query, {"purpose", "order"}, kListMax, &query)) {
    return responder->Send(ToResponse(*error));
  }
  const std::string order = query.more["order"];
  if (!order.empty() && order != "asc" && order != "desc") {
    return responder->Send(ToResponse(openai::InvalidParam(
        "order", "Invalid value: '" + order + "'. Supported values are: 'asc' and 'desc'.")));
  }
  v1::ListFilesRequest asked;
  asked.set_purpose(query.more["purpose"]);
  asked.set_limit(static_cast<uint32_t>(query.limit));
  asked.set_after(query.after);
  asked.set_oldest_first(order == "asc");
  SetOwner(request, &asked);
  jobs_->Call(&JobsClient::Stub::async_interface::ListFiles, asked,
              [responder, after = query.after](const absl::StatusOr<v1::ListFilesResponse>& list) {
                responder->Send(list.ok() ? JsonAnswer(FileListBody(*list))
                                          : ToResponse(JobsError(list.status(),
                                                                 NoSuchFile(after, "after", 400))));
              });
}

void FilesApi::Retrieve(const http::Request& request, const ResponderPtr& responder) {
  const std::string id = IdIn(request, kPath, kContent);
  jobs_->Call(&JobsClient::Stub::async_interface::GetFile, FileIdOf(request),
              [responder, id](const absl::StatusOr<v1::StoredFile>& file) {
                responder->Send(
                    file.ok() ? JsonAnswer(FileBody(*file))
                              : ToResponse(JobsError(file.status(), NoSuchFile(id, "id", 404))));
              });
}

void FilesApi::Delete(const http::Request& request, const ResponderPtr& responder) {
  const std::string id = IdIn(request, kPath, kContent);
  jobs_->Call(&JobsClient::Stub::async_interface::DeleteFile, FileIdOf(request),
              [responder, id](const absl::StatusOr<v1::DeleteFileResponse>& deleted) {
                responder->Send(deleted.ok() ? JsonAnswer(FileDeletedBody(id))
                                             : ToResponse(JobsError(deleted.status(),
                                                                    NoSuchFile(id, "id", 404))));
              });
}

}  // namespace skein::services
