// ClientUpload: a file on its way from a client to the leading orchestrator.
//
// Up to kBufferBytes are held. A file that fits is sent when all of it has come, and again if the
// orchestrator changes meanwhile. A longer one is passed on while it comes; if the orchestrator is
// lost then, so is the upload: UNAVAILABLE, and the client sends it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/jobs.pb.h"
#include "services/router/jobs/jobs_client.h"

namespace skein::services {

// Any thread.
class ClientUpload : public std::enable_shared_from_this<ClientUpload> {
 public:
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr size_t kChunkBytes = 256 << 10;  // of one message
  using Done = std::function<void(absl::StatusOr<v1::StoredFile>)>;

  // `jobs` outlives it. `room`: may be called from within Add.
  ClientUpload(JobsClient* jobs, std::function<void()> room)
      : jobs_(jobs), room_(std::move(room)) {}
  ~ClientUpload();

  // What is known of the file before its content; its id, name and purpose. Before Add.
  void Describe(v1::StoredFile header);
  // False: `room` is called when more is welcome. After a failure everything is welcome, and
  // dropped.
  bool Add(std::string_view bytes);
  // The content is complete. `header`: as the client has described the file in the end. What is not
  // as it was said before the content goes into the trailer. `done` runs once, on the loop of
  // `jobs`.
  void Finish(v1::StoredFile header, Done done);
  // The client has gone: nothing is kept of the file.
  void Cancel();

 private:
  class Stream;

  // With mu_ held.
  bool IsFull() const { return content_.size() - at_ > kBufferBytes; }
  bool TakeNext(v1::CreateFileRequest* message);
  void Begin();
  void OpenStream(std::shared_ptr<JobsClient::Stub> stub, JobsClient::Ended ended);
  void SendWhole();
  void Sent();
  void Ended(const absl::Status& status);

  JobsClient* const jobs_;
  const std::function<void()> room_;
  std::mutex mu_;  // guards all below
  v1::StoredFile header_;
  std::optional<v1::StoredFile> last_header_;  // set: the content is complete
  std::string content_;                        // that came, without what was dropped
  size_t at_ = 0;                              // of content_: what was sent before it
  uint64_t came_bytes_ = 0;
  bool header_sent_ = false, trailer_sent_ = false;
  bool begun_ = false;     // it is passed on while it comes
  bool room_due_ = false;  // Add has returned false
  std::shared_ptr<Stream> stream_;
  std::optional<absl::Status> ended_;
  v1::StoredFile stored_;
  Done done_;
};

}  // namespace skein::services
