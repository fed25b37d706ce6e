#include "services/jobs/job_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/jobs/job_transfers.h"
#include "services/rpc/credentials.h"

namespace skein::services {
namespace {

grpc::Status TurnedOff() {
  return ToGrpc(absl::FailedPreconditionError(
      "offline jobs are turned off at this orchestrator: it has no --jobs-dir"));
}

template <class T>
absl::Status Fill(absl::StatusOr<T> value, T* response) {
  if (value.ok()) *response = *std::move(value);
  return value.status();
}

// The status of the job with its progress.
absl::Status FillJob(JobShell* shell, absl::StatusOr<JobStore::Job> job, v1::JobStatus* response) {
  if (!job.ok()) return job.status();
  if (const auto copy = shell->Look()) shell->FillProgress(copy->snapshot, &*job);
  *response = std::move(job->status);
  return absl::OkStatus();
}

// The owner of a message that may name one.
template <class Message>
JobStore::Owner OwnerOf(const Message& message) {
  return message.has_owner() ? JobStore::Owner(message.owner()) : std::nullopt;
}

// A stream that is refused.
class RefusedLines : public grpc::ServerBidiReactor<v1::RouterLines, v1::OrchestratorLines> {
 public:
  RefusedLines() { Finish(TurnedOff()); }
  void OnDone() override { delete this; }
};

}  // namespace

// Why this call is not begun; OK: it is.
grpc::Status JobService::RefusalOf(const grpc::CallbackServerContext& context) const {
  if (absl::Status caller = CheckCaller(context); !caller.ok()) return ToGrpc(caller);
  return shell_ == nullptr ? TurnedOff() : grpc::Status::OK;
}

grpc::ServerUnaryReactor* JobService::Unary(grpc::CallbackServerContext* context,
                                            std::function<absl::Status(JobStore*)> answer) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (grpc::Status refusal = RefusalOf(*context); !refusal.ok()) {
    reactor->Finish(refusal);
    return reactor;
  }
  shell_->OnStore(reactor, [this, reactor, answer = std::move(answer)](JobStore* store) {
    reactor->Finish(ToGrpc(shell_->Told(answer(store))));
  });
  return reactor;
}

grpc::ServerReadReactor<v1::CreateFileRequest>* JobService::CreateFile(
    grpc::CallbackServerContext* context, v1::StoredFile* response) {
  const grpc::Status refusal = RefusalOf(*context);
  return refusal.ok() ? FileUpload::Begin(shell_, context, response) : FileUpload::Refuse(refusal);
}

grpc::ServerWriteReactor<v1::FileContent>* JobService::ReadFile(
    grpc::CallbackServerContext* context, const v1::FileId* request) {
  const grpc::Status refusal = RefusalOf(*context);
  return refusal.ok() ? FileDownload::Begin(shell_, request->id(), OwnerOf(*request))
                      : FileDownload::Refuse(refusal);
}

grpc::ServerUnaryReactor* JobService::GetFile(grpc::CallbackServerContext* context,
                                              const v1::FileId* request, v1::StoredFile* response) {
  return Unary(context, [request = *request, response](JobStore* store) {
    return Fill(store->GetFile(request.id(), OwnerOf(request)), response);
  });
}

grpc::ServerUnaryReactor* JobService::ListFiles(grpc::CallbackServerContext* context,
                                                const v1::ListFilesRequest* request,
                                                v1::ListFilesResponse* response) {
  return Unary(context, [request = *request, response](JobStore* store) {
    return Fill(store->ListFiles(request), response);
  });
}

grpc::ServerUnaryReactor* JobService::DeleteFile(grpc::CallbackServerContext* context,
                                                 const v1::FileId* request,
                                                 v1::DeleteFileResponse*) {
  return Unary(context, [request = *request](JobStore* store) {
    return store->DeleteFile(request.id(), OwnerOf(request));
  });
}

grpc::ServerUnaryReactor* JobService::CreateJob(grpc::CallbackServerContext* context,
                                                const v1::CreateJobRequest* request,
                                                v1::JobStatus* response) {
  return Unary(context, [shell = shell_, request = *request, response](JobStore* store) {
    auto job = store->CreateJob(request);
    if (job.ok() && job->fresh) shell->Created(*job);
    return FillJob(shell, std::move(job), response);
  });
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::JobId* request, v1::JobStatus* response) {
  return Unary(context, [shell = shell_, request = *request, response](JobStore* store) {
    return FillJob(shell, store->GetJob(request.id(), OwnerOf(request)), response);
  });
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  return Unary(context,
               [shell = shell_, request = *request, response](JobStore* store) -> absl::Status {
                 bool more = false;
                 auto jobs = store->ListJobs(request, &more);
                 if (!jobs.ok()) return jobs.status();
                 const auto copy = shell->Look();
                 for (JobStore::Job& job : *jobs) {
                   if (copy.has_value()) shell->FillProgress(copy->snapshot, &job);
                   *response->add_jobs() = std::move(job.status);
                 }
                 response->set_more(more);
                 return absl::OkStatus();
               });
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::JobId* request, v1::JobStatus* response) {
  return Unary(context, [shell = shell_, request = *request, response](JobStore* store) {
    auto job = store->BeginCancel(request.id(), OwnerOf(request));
    if (job.ok()) shell->Cancelled(*job);
    return FillJob(shell, std::move(job), response);
  });
}

grpc::ServerBidiReactor<v1::RouterLines, v1::OrchestratorLines>* JobService::ComputeLines(
    grpc::CallbackServerContext* context) {
  if (shell_ == nullptr) return new RefusedLines();
  return shell_->Connect(context);
}

}  // namespace skein::services
