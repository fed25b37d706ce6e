#include "services/router/jobs/batches_api.h"

#include <utility>

#include "services/base/random_bits.h"
#include "services/openai/batch_request.h"
#include "services/router/api/api_error_map.h"
#include "services/router/api/body_notes.h"
#include "services/router/jobs/job_objects.h"
#include "services/router/jobs/list_query.h"
#include "services/router/jobs/owner.h"

namespace skein::services {
namespace {

constexpr char kPath[] = "/v1/batches";
constexpr char kCancel[] = "/cancel";
constexpr int64_t kListMax = 100;

v1::JobId JobIdOf(const http::Request& request) {
  v1::JobId out;
  out.set_id(IdIn(request, kPath, kCancel));
  SetOwner(request, &out);
  return out;
}

v1::CreateJobRequest JobOf(const http::Request& request, const openai::BatchRequest& batch) {
  v1::CreateJobRequest job;
  SetOwner(request, &job);
  job.set_id("batch_" + RandomHex());
  job.set_input_file(batch.input_file);
  job.set_endpoint(batch.endpoint);
  job.set_window_s(static_cast<uint64_t>(batch.window_s));
  for (const auto& [key, value] : batch.metadata) (*job.mutable_metadata())[key] = value;
  job.set_output_expires_after_s(static_cast<uint64_t>(batch.output_expires_after_s));
  return job;
}

}  // namespace

BatchesApi::BatchesApi(BatchesApiOptions options, JobsClient* jobs, RouterMetrics* metrics)
    : options_(std::move(options)), jobs_(jobs), metrics_(metrics) {}

void BatchesApi::AddRoutes(http::Routes* routes) {
  const auto add = [this, routes](const char* method, const char* path, auto handle) {
    routes->Add(method, path,
                [this, handle](const http::Request& request, const ResponderPtr& responder) {
                  (this->*handle)(request, responder);
                });
  };
  add("POST", kPath, &BatchesApi::Create);
  add("GET", kPath, &BatchesApi::List);
  add("GET", "/v1/batches/*", &BatchesApi::Retrieve);
  add("POST", "/v1/batches/*/cancel", &BatchesApi::Cancel);
}

void BatchesApi::Create(const http::Request& request, const ResponderPtr& responder) {
  if (options_.draining()) return responder->Send(ToResponse(Draining()));
  if (std::string why = WhyNotPlainJson(request); !why.empty()) {
    return responder->Send(ToResponse({415, std::move(why), "", "unsupported_media_type"}));
  }
  openai::BatchRequest batch;
  const openai::MaybeError error = openai::Parse(request.body, {.strict = options_.strict}, &batch);
  const std::vector<http::Header> headers = NoteBody(request, batch.notes, metrics_);
  const auto answer = [responder, headers](http::Response response) {
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    responder->Send(std::move(response));
  };
  if (error) return answer(ToResponse(*error));
  jobs_->Call(&JobsClient::Stub::async_interface::CreateJob, JobOf(request, batch),
              [answer, file = batch.input_file](const absl::StatusOr<v1::JobStatus>& job) {
                answer(job.ok() ? JsonAnswer(BatchBody(*job))
                                : ToResponse(JobsError(job.status(),
                                                       NoSuchFile(file, "input_file_id", 400))));
              });
}

void BatchesApi::List(const http::Request& request, const ResponderPtr& responder) {
  ListQuery query;
  if (auto error = ParseListQuery(request.query, {}, kListMax, &query)) {
    return responder->Send(ToResponse(*error));
  }
  v1::ListJobsRequest asked;
  asked.set_limit(static_cast<uint32_t>(query.limit));
  asked.set_after(query.after);
  SetOwner(request, &asked);
  jobs_->Call(&JobsClient::Stub::async_interface::ListJobs, asked,
              [responder, after = query.after](const absl::StatusOr<v1::ListJobsResponse>& list) {
                openai::ApiError missing = NoSuchBatch(after);
                missing.status = 400;
                missing.param = "after";
                responder->Send(list.ok() ? JsonAnswer(BatchListBody(*list))
                                          : ToResponse(JobsError(list.status(), missing)));
              });
}

void BatchesApi::Retrieve(const http::Request& request, const ResponderPtr& responder) {
  const std::string id = IdIn(request, kPath, kCancel);
  jobs_->Call(&JobsClient::Stub::async_interface::GetJob, JobIdOf(request),
              [responder, id](const absl::StatusOr<v1::JobStatus>& job) {
                responder->Send(job.ok() ? JsonAnswer(BatchBody(*job))
                                         : ToResponse(JobsError(job.status(), NoSuchBatch(id))));
              });
}

void BatchesApi::Cancel(const http::Request& request, const ResponderPtr& responder) {
  const v1::JobId id_of_owner = JobIdOf(request);
  jobs_->Call(&JobsClient::Stub::async_interface::CancelJob, id_of_owner,
              [this, responder, id_of_owner,
               id = id_of_owner.id()](const absl::StatusOr<v1::JobStatus>& job) {
                if (absl::IsFailedPrecondition(job.status())) {
                  return RefuseCancel(id_of_owner, responder);
                }
                responder->Send(job.ok() ? JsonAnswer(BatchBody(*job))
                                         : ToResponse(JobsError(job.status(), NoSuchBatch(id))));
              });
}

// It has ended, or the orchestrator keeps no jobs at all.
void BatchesApi::RefuseCancel(const v1::JobId& asked, const ResponderPtr& responder) {
  jobs_->Call(&JobsClient::Stub::async_interface::GetJob, asked,
              [responder, id = asked.id()](const absl::StatusOr<v1::JobStatus>& job) {
                if (!job.ok()) {
                  return responder->Send(ToResponse(JobsError(job.status(), NoSuchBatch(id))));
                }
                const std::string state(StateName(job->state()));
                responder->Send(ToResponse(
                    {409, "Cannot cancel a batch with status '" + state + "'.", "", ""}));
              });
}

}  // namespace skein::services
