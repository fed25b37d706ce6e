// The gRPC face of offline jobs (proto/jobs.proto).
#pragma once

#include "proto/jobs.grpc.pb.h"
#include "services/jobs/job_shell.h"

namespace skein::services {

class JobService final : public v1::Jobs::CallbackService {
 public:
  // `shell` outlives the service; null: jobs are turned off, and every call says so.
  explicit JobService(JobShell* shell) : shell_(shell) {}

  grpc::ServerReadReactor<v1::CreateFileRequest>* CreateFile(grpc::CallbackServerContext* context,
                                                             v1::StoredFile* response) override;
  grpc::ServerUnaryReactor* GetFile(grpc::CallbackServerContext* context, const v1::FileId* request,
                                    v1::StoredFile* response) override;
  grpc::ServerUnaryReactor* ListFiles(grpc::CallbackServerContext* context,
                                      const v1::ListFilesRequest* request,
                                      v1::ListFilesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteFile(grpc::CallbackServerContext* context,
                                       const v1::FileId* request,
                                       v1::DeleteFileResponse* response) override;
  grpc::ServerWriteReactor<v1::FileContent>* ReadFile(grpc::CallbackServerContext* context,
                                                      const v1::FileId* request) override;
  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::JobId* request,
                                   v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::JobId* request, v1::JobStatus* response) override;
  grpc::ServerBidiReactor<v1::RouterLines, v1::OrchestratorLines>* ComputeLines(
      grpc::CallbackServerContext* context) override;

 private:
  // `answer` runs on the store's thread; its status ends the call.
  grpc::Status RefusalOf(const grpc::CallbackServerContext& context) const;
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  std::function<absl::Status(JobStore*)> answer);

  JobShell* const shell_;
};

}  // namespace skein::services
