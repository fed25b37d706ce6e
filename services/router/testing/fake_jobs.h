// The service Jobs of an orchestrator, in memory: files, jobs that nobody computes unless the test
// gives their lines out, and the streams of routers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/jobs.grpc.pb.h"

namespace skein::services::testing {

class FakeJobs final : public v1::Jobs::Service {
 public:
  struct File {
    v1::StoredFile file;
    std::string content;
    std::optional<v1::StoredFile> trailer;  // as it came
    size_t messages = 0;
  };

  // The next so many calls fail with `status`, streams excepted.
  void FailNext(int calls, absl::Status status);
  // What every call is answered with from now on, if it is not OK; streams, too.
  void FailAll(absl::Status status);
  void Put(const std::string& id, const std::string& content);
  void PutJob(const v1::JobStatus& job);
  std::map<std::string, File> files();
  std::vector<v1::CreateJobRequest> created();
  int calls();

  // ---- the stream of the one router ----
  // The next message of the router that is not empty; none within 30 s fails the test.
  v1::RouterLines Next();
  void Send(const v1::OrchestratorLines& message);
  void GiveLine(const std::string& job, uint64_t line, const std::string& endpoint,
                const std::string& body, uint64_t within_us = 60'000'000,
                const std::string& owner = "");
  void Keep(const v1::LineId& line);
  // Ends the router's stream.
  void BreakStream();
  // Before the server shuts down.
  void Stop();

  grpc::Status CreateFile(grpc::ServerContext*, grpc::ServerReader<v1::CreateFileRequest>* reader,
                          v1::StoredFile* response) override;
  grpc::Status GetFile(grpc::ServerContext*, const v1::FileId* id,
                       v1::StoredFile* response) override;
  grpc::Status ListFiles(grpc::ServerContext*, const v1::ListFilesRequest* request,
                         v1::ListFilesResponse* response) override;
  grpc::Status DeleteFile(grpc::ServerContext*, const v1::FileId* id,
                          v1::DeleteFileResponse*) override;
  grpc::Status ReadFile(grpc::ServerContext*, const v1::FileId* id,
                        grpc::ServerWriter<v1::FileContent>* writer) override;
  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::JobStatus* response) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::JobId* id, v1::JobStatus* response) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::JobId* id,
                         v1::JobStatus* response) override;
  grpc::Status ComputeLines(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::OrchestratorLines, v1::RouterLines>* stream) override;

 private:
  // With mutex_ held: not OK, if this call is to fail.
  absl::Status Fails();

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int fail_calls_ = 0, calls_ = 0;
  absl::Status failure_, failure_of_all_;
  std::map<std::string, File> files_;
  std::map<std::string, v1::JobStatus> jobs_;
  std::vector<v1::CreateJobRequest> created_;
  int64_t now_s_ = 1'700'000'000;  // grows with each file and job
  std::deque<v1::RouterLines> from_router_;
  grpc::ServerReaderWriter<v1::OrchestratorLines, v1::RouterLines>* stream_ = nullptr;
  grpc::ServerContext* stream_context_ = nullptr;
  bool stopped_ = false;
};

}  // namespace skein::services::testing
