#include "services/router/jobs/upload_form.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"
#include "services/http/error.h"
#include "services/openai/batch_request.h"
#include "services/router/jobs/files_api.h"
#include "services/router/jobs/job_objects.h"

namespace skein::services {
namespace {

using openai::InvalidParam;

constexpr size_t kFieldsMax = 16, kFieldBytesMax = 1 << 10, kNameBytesMax = 255;

}  // namespace

UploadForm::UploadForm(JobsClient* jobs, std::string_view boundary, std::string owner,
                       size_t file_bytes_max, std::shared_ptr<http::ByteBudget::Lease> held)
    : jobs_(jobs),
      owner_(std::move(owner)),
      file_bytes_max_(file_bytes_max),
      held_(std::move(held)),
      id_("file-" + RandomHex()),
      now_s_(std::time(nullptr)),
      reader_(boundary, {.begin = [this](http::FormPart part) { BeginPart(std::move(part)); },
                         .content = [this](std::string_view bytes) { AddContent(bytes); },
                         .end = [this] { EndPart(); }}) {}

UploadForm::~UploadForm() {
  if (upload_ != nullptr && !finished_) upload_->Cancel();
}

void UploadForm::Start(std::function<void()> room) {
  upload_ = std::make_shared<ClientUpload>(jobs_, std::move(room));
}

bool UploadForm::Take(std::string_view bytes) {
  if (error_) return true;
  room_ = true;
  if (!reader_.Feed(bytes)) {
    Fail(
        {400, absl::StrCat("Malformed multipart/form-data: ", reader_.error()), "", "bad_request"});
  }
  return room_;
}

void UploadForm::Fail(openai::ApiError error) {
  if (error_) return;
  error_ = std::move(error);
  upload_->Cancel();
  room_ = true;
}

void UploadForm::BeginPart(http::FormPart part) {
  part_ = std::move(part.name);
  in_file_ = part_ == "file";
  if (!in_file_) {
    if (fields_.size() >= kFieldsMax) {
      return Fail({400, absl::StrCat("The form has more than ", kFieldsMax, " fields."), "",
                   "bad_request"});
    }
    fields_[part_].clear();
    return;
  }
  if (std::exchange(has_file_, true)) {
    return Fail(InvalidParam("file", "Invalid 'file': one file is expected in each request."));
  }
  if (!part.filename.has_value()) {
    return Fail(
        InvalidParam("file", "Invalid 'file': expected a file with a filename, not a text field."));
  }
  filename_ = *std::move(part.filename);
  if (filename_.size() > kNameBytesMax || !http::IsUtf8(filename_)) {
    return Fail(InvalidParam("file", absl::StrCat("Invalid 'file': its filename must be UTF-8 of ",
                                                  kNameBytesMax, " bytes at most.")));
  }
  upload_->Describe(Header(0));
}

void UploadForm::AddContent(std::string_view bytes) {
  if (error_) return;
  if (!in_file_) {
    std::string& value = fields_[part_];
    value.append(bytes);
    if (value.size() <= kFieldBytesMax) return;
    return Fail(InvalidParam(part_.substr(0, 64),
                             absl::StrCat("Invalid '", part_.substr(0, 64), "': longer than ",
                                          kFieldBytesMax, " bytes.")));
  }
  file_bytes_ += bytes.size();
  if (file_bytes_ > file_bytes_max_) {
    return Fail({413,
                 absl::StrCat("The file is larger than ", file_bytes_max_,
                              " bytes, which is the limit here (--max-file-bytes)."),
                 "file", "request_too_large"});
  }
  room_ = upload_->Add(bytes);
}

void UploadForm::EndPart() { in_file_ = false; }

v1::StoredFile UploadForm::Header(int64_t expires_after_s) const {
  v1::StoredFile header;
  header.set_id(id_);
  header.set_name(filename_.empty() ? "upload" : filename_);
  header.set_purpose("batch");  // the only one that is kept here
  header.set_owner(owner_);
  header.set_created_s(now_s_);
  header.set_expires_s(now_s_ + (expires_after_s > 0 ? expires_after_s : FilesApi::kExpiresAfterS));
  return header;
}

void UploadForm::Finish(Done done) {
  openai::FileForm form;
  if (!error_ && !reader_.complete()) {
    Fail({400, "Malformed multipart/form-data: the body ends before its closing boundary.", "",
          "bad_request"});
  }
  if (openai::MaybeError error = openai::ParseFileForm(fields_, &form)) Fail(*std::move(error));
  if (!has_file_) {
    Fail(InvalidParam("file", "Missing required parameter: 'file'.", "missing_required_parameter"));
  }
  if (file_bytes_ == 0) Fail(InvalidParam("file", "Invalid 'file': the file is empty."));
  if (error_) return done(error_, {});
  finished_ = true;
  upload_->Finish(Header(form.expires_after_s),
                  [done = std::move(done)](const absl::StatusOr<v1::StoredFile>& stored) {
                    if (stored.ok()) return done(std::nullopt, *stored);
                    done(JobsError(stored.status(), {500, "The file was not kept.", "", ""}), {});
                  });
}

}  // namespace skein::services
