#include "services/router/jobs/client_upload.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "grpcpp/support/client_callback.h"

namespace skein::services {
namespace {

constexpr std::chrono::hours kUploadMax{1};

}  // namespace

// One call of CreateFile.
class ClientUpload::Stream : public grpc::ClientWriteReactor<v1::CreateFileRequest>,
                             public std::enable_shared_from_this<ClientUpload::Stream> {
 public:
  Stream(std::shared_ptr<ClientUpload> upload, std::shared_ptr<JobsClient::Stub> stub,
         JobsClient::Ended ended)
      : upload_(std::move(upload)), stub_(std::move(stub)), ended_(std::move(ended)) {}

  // With the upload's lock held, as Pump and Cancel.
  void Open() {
    self_ = shared_from_this();
    context_.set_deadline(std::chrono::system_clock::now() + kUploadMax);
    upload_->jobs_->calls()->Add(&context_);
    stub_->async()->CreateFile(&context_, &response_, this);
    AddHold();  // writes start outside of gRPC's callbacks
    Pump();
    StartCall();
  }

  void Pump() {
    if (writing_ || over_) return;
    if (upload_->TakeNext(&message_)) {
      writing_ = true;
      StartWrite(&message_);
    } else if (upload_->last_header_.has_value()) {
      over_ = true;
      StartWritesDone();
      RemoveHold();
    }
  }

  // Without a write under way nothing else would end the hold.
  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
    if (writing_ || std::exchange(over_, true)) return;
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    bool over = false;
    {
      std::lock_guard lock(upload_->mu_);
      writing_ = false;
      if (ok && !cancelled_) {
        Pump();
      } else {
        over = !std::exchange(over_, true);
      }
    }
    if (ok) upload_->Sent();
    if (over) RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard lock(upload_->mu_);
      if (status.ok()) upload_->stored_ = response_;
      upload_->stream_.reset();
    }
    CallTracker* const calls = upload_->jobs_->calls();
    ended_(EndOfCall(status, JobsClient::kPeer, context_));
    calls->Release(&context_);
    std::exchange(self_, nullptr).reset();
    calls->Leave();
  }

 private:
  const std::shared_ptr<ClientUpload> upload_;
  const std::shared_ptr<JobsClient::Stub> stub_;
  const JobsClient::Ended ended_;
  grpc::ClientContext context_;
  v1::StoredFile response_;
  v1::CreateFileRequest message_;  // while `writing_`
  bool writing_ = false;
  bool over_ = false;  // nothing more is written
  bool cancelled_ = false;
  std::shared_ptr<Stream> self_;
};

ClientUpload::~ClientUpload() = default;

void ClientUpload::Describe(v1::StoredFile header) {
  std::lock_guard lock(mu_);
  header_ = std::move(header);
}

bool ClientUpload::Add(std::string_view bytes) {
  std::lock_guard lock(mu_);
  if (ended_.has_value()) return true;
  content_.append(bytes);
  came_bytes_ += bytes.size();
  if (!begun_ && content_.size() > kBufferBytes) Begin();
  if (stream_ != nullptr) stream_->Pump();
  room_due_ = begun_ && IsFull();
  return !room_due_;
}

// A standby would break the stream with what it was sent, so the leader is found before.
void ClientUpload::Begin() {
  begun_ = true;
  v1::FileId id;
  id.set_id(header_.id());
  const auto self = shared_from_this();
  jobs_->Call(&JobsClient::Stub::async_interface::GetFile, id,
              [self](const absl::StatusOr<v1::StoredFile>& found) {
                if (!found.ok() && !absl::IsNotFound(found.status())) {
                  return self->Ended(found.status());
                }
                std::lock_guard lock(self->mu_);
                if (self->ended_.has_value()) return;
                self->OpenStream(
                    self->jobs_->StubOf(self->jobs_->Current()),
                    [self](const absl::Status& status) {
                      self->jobs_->loop().Post([self, status] { self->Ended(status); });
                    });
              });
}

void ClientUpload::OpenStream(std::shared_ptr<JobsClient::Stub> stub, JobsClient::Ended ended) {
  header_sent_ = trailer_sent_ = false;
  at_ = 0;
  stream_ = std::make_shared<Stream>(shared_from_this(), std::move(stub), std::move(ended));
  stream_->Open();
}

// Sent bytes are dropped where the file is passed on while it comes, and kept for another attempt
// where it is not.
bool ClientUpload::TakeNext(v1::CreateFileRequest* message) {
  message->Clear();
  if (!std::exchange(header_sent_, true)) {
    *message->mutable_header() = header_;
    return true;
  }
  const size_t bytes = std::min(content_.size() - at_, kChunkBytes);
  if (bytes > 0) {
    message->set_content(content_.substr(at_, bytes));
    at_ += bytes;
    if (begun_) content_.erase(0, std::exchange(at_, 0));
    return true;
  }
  // Whoever reads a content of unknown size needs its end: a call that is cancelled may look like
  // one that is complete.
  const bool ends = begun_ && last_header_.has_value();
  if (!ends || std::exchange(trailer_sent_, true)) return false;
  *message->mutable_trailer() = *last_header_;
  return true;
}

void ClientUpload::Sent() {
  {
    std::lock_guard lock(mu_);
    if (!room_due_ || IsFull()) return;
    room_due_ = false;
  }
  room_();
}

void ClientUpload::Finish(v1::StoredFile header, Done done) {
  std::unique_lock lock(mu_);
  done_ = std::move(done);
  if (ended_.has_value()) {
    lock.unlock();
    return jobs_->loop().Post([self = shared_from_this()] { self->Ended(absl::OkStatus()); });
  }
  if (!begun_) {
    header_ = header;
    header_.set_bytes(content_.size());
  }
  last_header_ = std::move(header);
  last_header_->set_bytes(came_bytes_);
  if (stream_ != nullptr) stream_->Pump();
  if (!begun_) SendWhole();
}

void ClientUpload::SendWhole() {
  const auto self = shared_from_this();
  jobs_->Run(
      [self](std::shared_ptr<JobsClient::Stub> stub, JobsClient::Ended ended) {
        std::unique_lock lock(self->mu_);
        if (self->ended_.has_value()) {
          lock.unlock();
          return ended(*self->ended_);
        }
        self->OpenStream(std::move(stub), std::move(ended));
      },
      [self](const absl::Status& status) { self->Ended(status); });
}

// On the loop. The first end counts.
void ClientUpload::Ended(const absl::Status& status) {
  Done done;
  absl::StatusOr<v1::StoredFile> result;
  bool room = false;
  {
    std::lock_guard lock(mu_);
    if (!ended_.has_value()) {
      ended_ = status;
      // The orchestrator has answered before the content's end, so it has not read it.
      if (status.ok() && !last_header_.has_value()) {
        ended_ = absl::InternalError("the orchestrator took a part of the file for the whole");
      }
      if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) {
        ended_ = absl::UnavailableError("The orchestrator was lost during the upload. Retry.");
      }
    }
    content_ = {};
    at_ = 0;
    room = std::exchange(room_due_, false);
    done.swap(done_);
    if (ended_->ok()) {
      result = stored_;
    } else {
      result = *ended_;
    }
  }
  if (room) room_();
  if (done) done(std::move(result));
}

void ClientUpload::Cancel() {
  std::lock_guard lock(mu_);
  if (ended_.has_value() || done_ != nullptr) return;
  ended_ = absl::CancelledError("the client has gone");
  content_ = {};
  at_ = 0;
  if (stream_ != nullptr) stream_->Cancel();
}

}  // namespace skein::services
