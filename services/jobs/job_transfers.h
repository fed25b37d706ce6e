// CreateFile and ReadFile: a file's content in pieces, one at a time, so that a slow disk or a slow
// peer stops the other side. They end themselves.
#pragma once

#include <memory>
#include <string>

#include "proto/jobs.pb.h"
#include "services/jobs/job_shell.h"

namespace skein::services {

class FileUpload : public grpc::ServerReadReactor<v1::CreateFileRequest> {
 public:
  // `response` is filled before the call ends. `shell` outlives the call.
  static FileUpload* Begin(JobShell* shell, grpc::CallbackServerContext* context,
                           v1::StoredFile* response);
  static FileUpload* Refuse(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  FileUpload(JobShell* shell, grpc::CallbackServerContext* context, v1::StoredFile* response)
      : shell_(shell), context_(context), response_(response) {}

  // On the thread of files.
  absl::Status TakePart();
  absl::Status TakeHeader(const v1::StoredFile& header);
  absl::Status CheckWhole() const;
  void End();

  JobShell* const shell_;
  grpc::CallbackServerContext* const context_;
  v1::StoredFile* const response_;
  v1::CreateFileRequest part_;
  v1::StoredFile header_;
  std::unique_ptr<NewFile> content_;  // null: the header has not come
  bool whole_ = false;                // the header or the trailer says how long the content is
};

class FileDownload : public grpc::ServerWriteReactor<v1::FileContent> {
 public:
  static FileDownload* Begin(JobShell* shell, const std::string& id, const JobStore::Owner& owner);
  static FileDownload* Refuse(const grpc::Status& status);

  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  explicit FileDownload(JobShell* shell) : shell_(shell) {}
  void Next();  // on the thread of files

  JobShell* const shell_;
  std::unique_ptr<FileReader> file_;
  uint64_t at_ = 0;
  v1::FileContent part_;
};

}  // namespace skein::services
