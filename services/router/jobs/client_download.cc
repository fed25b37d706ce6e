#include "services/router/jobs/client_download.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "grpcpp/support/client_callback.h"

namespace skein::services {
namespace {

constexpr std::chrono::hours kDownloadMax{1};

}  // namespace

// One call of ReadFile.
class ClientDownload::Stream : public grpc::ClientReadReactor<v1::FileContent>,
                               public std::enable_shared_from_this<ClientDownload::Stream> {
 public:
  Stream(std::shared_ptr<ClientDownload> download, std::shared_ptr<JobsClient::Stub> stub,
         JobsClient::Ended ended)
      : download_(std::move(download)), stub_(std::move(stub)), ended_(std::move(ended)) {}

  void Open() {
    self_ = shared_from_this();
    id_ = download_->id_;
    context_.set_deadline(std::chrono::system_clock::now() + kDownloadMax);
    download_->jobs_->calls()->Add(&context_);
    stub_->async()->ReadFile(&context_, &id_, this);
    AddHold();  // reads start outside of gRPC's callbacks
    StartRead(&message_);
    StartCall();
  }

  // Without a read under way nothing else would end the hold.
  void Cancel() {
    context_.TryCancel();
    std::lock_guard lock(mu_);
    if (std::exchange(paused_, false)) RemoveHold();
  }

  // The client has taken what it was sent.
  void Resume() {
    std::lock_guard lock(mu_);
    resumed_ = true;
    ReadOn();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return RemoveHold();
    const uint64_t at = std::exchange(at_, at_ + message_.content().size());
    {
      std::lock_guard lock(mu_);
      resumed_ = false;
      paused_ = true;
    }
    const bool more = download_->Send(at, std::move(*message_.mutable_content()));
    std::lock_guard lock(mu_);
    if (more || resumed_) ReadOn();
  }

  void OnDone(const grpc::Status& status) override {
    bool gone = false;
    {
      std::lock_guard lock(download_->mu_);
      download_->stream_.reset();
      gone = download_->gone_;
    }
    CallTracker* const calls = download_->jobs_->calls();
    ended_(gone ? absl::AbortedError("the client has gone")
                : EndOfCall(status, JobsClient::kPeer, context_));
    calls->Release(&context_);
    std::exchange(self_, nullptr).reset();
    calls->Leave();
  }

 private:
  // With mu_ held.
  void ReadOn() {
    if (std::exchange(paused_, false)) StartRead(&message_);
  }

  const std::shared_ptr<ClientDownload> download_;
  const std::shared_ptr<JobsClient::Stub> stub_;
  const JobsClient::Ended ended_;
  grpc::ClientContext context_;
  v1::FileId id_;
  v1::FileContent message_;  // being read, unless `paused_`
  uint64_t at_ = 0;          // of the file: where the next message begins
  std::mutex mu_;            // guards the below
  bool paused_ = false, resumed_ = false;
  std::shared_ptr<Stream> self_;
};

ClientDownload::ClientDownload(JobsClient* jobs, v1::FileId id,
                               std::shared_ptr<http::Responder> responder, Refuse refuse)
    : jobs_(jobs),
      id_(std::move(id)),
      responder_(std::move(responder)),
      refuse_(std::move(refuse)) {}

void ClientDownload::Begin(JobsClient* jobs, const v1::FileId& id,
                           std::shared_ptr<http::Responder> responder, Refuse refuse) {
  auto self = std::make_shared<ClientDownload>(jobs, id, std::move(responder), std::move(refuse));
  const std::weak_ptr<ClientDownload> weak = self;
  self->responder_->Watch(
      [weak](http::Gone) {
        if (const auto download = weak.lock()) download->OnGone();
      },
      [weak] {
        if (const auto download = weak.lock()) download->OnDrained();
      });
  jobs->Run(
      [self](std::shared_ptr<JobsClient::Stub> stub, JobsClient::Ended ended) {
        auto stream = std::make_shared<Stream>(self, std::move(stub), std::move(ended));
        bool gone = false;
        {
          std::lock_guard lock(self->mu_);
          self->stream_ = stream;
          gone = self->gone_;
        }
        stream->Open();
        if (gone) stream->Cancel();
      },
      [self](const absl::Status& status) { self->Ended(status); });
}

bool ClientDownload::Send(uint64_t at, std::string bytes) {
  uint64_t skip = 0;
  bool head = false;
  {
    std::lock_guard lock(mu_);
    if (at < sent_bytes_) skip = std::min<uint64_t>(sent_bytes_ - at, bytes.size());
    sent_bytes_ += bytes.size() - skip;
    head = !std::exchange(headed_, true);
  }
  if (head) {
    http::Response response;
    response.content_type = "application/octet-stream";
    response.within = kDownloadMax;
    responder_->StartStream(std::move(response));
  }
  bytes.erase(0, skip);
  return responder_->Write(std::move(bytes));
}

void ClientDownload::OnDrained() {
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(mu_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Resume();
}

void ClientDownload::OnGone() {
  std::shared_ptr<Stream> stream;
  {
    std::lock_guard lock(mu_);
    gone_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Cancel();
}

// On the loop of `jobs`. An empty file has no message.
void ClientDownload::Ended(const absl::Status& status) {
  bool headed = false;
  {
    std::lock_guard lock(mu_);
    if (gone_) return;
    headed = headed_;
  }
  if (!status.ok()) return headed ? responder_->Abort() : refuse_(status);
  if (!headed) {
    http::Response response;
    response.content_type = "application/octet-stream";
    return responder_->Send(std::move(response));
  }
  responder_->Finish();
}

}  // namespace skein::services
