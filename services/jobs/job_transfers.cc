#include "services/jobs/job_transfers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr size_t kPartBytes = size_t{256} << 10;

}  // namespace

FileUpload* FileUpload::Begin(JobShell* shell, grpc::CallbackServerContext* context,
                              v1::StoredFile* response) {
  if (absl::Status ready = shell->Ready(); !ready.ok()) return Refuse(ToGrpc(ready));
  auto* const upload = new FileUpload(shell, context, response);
  upload->StartRead(&upload->part_);
  return upload;
}

FileUpload* FileUpload::Refuse(const grpc::Status& status) {
  auto* const upload = new FileUpload(nullptr, nullptr, nullptr);
  upload->Finish(status);
  return upload;
}

void FileUpload::OnReadDone(bool ok) {
  if (!ok) return shell_->OnFiles(this, [this] { End(); });
  shell_->OnFiles(this, [this] {
    const absl::Status status = TakePart();
    if (!status.ok()) return Finish(ToGrpc(status));
    StartRead(&part_);
  });
}

absl::Status FileUpload::TakePart() {
  if (part_.has_header()) return TakeHeader(part_.header());
  if (content_ == nullptr) return absl::InvalidArgumentError("header: it is the first message");
  if (part_.has_trailer()) {
    header_.set_expires_s(part_.trailer().expires_s());
    header_.set_bytes(part_.trailer().bytes());
    whole_ = true;
    return absl::OkStatus();
  }
  if (content_->bytes() + part_.content().size() > shell_->options().file_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("content: it is longer than ",
                                                   shell_->options().file_bytes_max,
                                                   " bytes (--jobs-file-mib)"));
  }
  return content_->Append(part_.content());
}

absl::Status FileUpload::TakeHeader(const v1::StoredFile& header) {
  if (content_ != nullptr) return absl::InvalidArgumentError("header: it came before");
  if (header.bytes() > shell_->options().file_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("header.bytes: ", header.bytes(), " exceeds the limit of ",
                     shell_->options().file_bytes_max, " (--jobs-file-mib)"));
  }
  header_ = header;
  whole_ = header.bytes() != 0;
  header_.set_created_s(0);  // the store's clock says it
  auto content = JobStore::BeginFile(shell_->options().folder, header.id());
  if (!content.ok()) return content.status();
  content_ = *std::move(content);
  return absl::OkStatus();
}

// A client that breaks off ends the reads as one that has sent all.
absl::Status FileUpload::CheckWhole() const {
  if (content_ == nullptr) return absl::InvalidArgumentError("header: it is missing");
  if (!whole_) {
    return absl::InvalidArgumentError(
        "trailer: it is missing, and the header does not say how long the content is");
  }
  if (header_.bytes() == content_->bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("content: it has ", content_->bytes(),
                                                 " bytes, and was to have ", header_.bytes()));
}

void FileUpload::End() {
  if (context_->IsCancelled()) return Finish(grpc::Status::CANCELLED);
  if (absl::Status whole = CheckWhole(); !whole.ok()) return Finish(ToGrpc(whole));
  if (absl::Status synced = content_->Sync(); !synced.ok()) return Finish(ToGrpc(synced));
  shell_->OnStore(this, [this](JobStore* store) {
    if (context_->IsCancelled()) return Finish(grpc::Status::CANCELLED);
    auto file = store->AddFile(header_, content_.get());
    if (file.ok()) *response_ = *std::move(file);
    Finish(ToGrpc(shell_->Told(file.status())));
  });
}

FileDownload* FileDownload::Begin(JobShell* shell, const std::string& id,
                                  const JobStore::Owner& owner) {
  auto* const download = new FileDownload(shell);
  shell->OnStore(download, [download, id, owner](JobStore* store) {
    auto file = store->ReadFile(id, owner);
    if (!file.ok()) {
      return download->Finish(ToGrpc(download->shell_->Told(file.status())));
    }
    download->file_ = *std::move(file);
    download->shell_->OnFiles(download, [download] { download->Next(); });
  });
  return download;
}

FileDownload* FileDownload::Refuse(const grpc::Status& status) {
  auto* const download = new FileDownload(nullptr);
  download->Finish(status);
  return download;
}

void FileDownload::Next() {
  auto piece = file_->Read(at_, kPartBytes);
  if (!piece.ok()) return Finish(ToGrpc(piece.status()));
  if (piece->empty()) return Finish(grpc::Status::OK);
  at_ += piece->size();
  part_.set_content(*std::move(piece));
  StartWrite(&part_);
}

void FileDownload::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status::CANCELLED);
  shell_->OnFiles(this, [this] { Next(); });
}

}  // namespace skein::services
