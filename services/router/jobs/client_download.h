// Sends a stored file to a client as the orchestrator reads it. When the orchestrator is lost in
// the middle, the next one is asked for the file again, and what the client has is passed over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "services/http/responder.h"
#include "services/router/jobs/jobs_client.h"

namespace skein::services {

class ClientDownload : public std::enable_shared_from_this<ClientDownload> {
 public:
  // `refuse`: answers a call that failed before the first byte was sent.
  using Refuse = std::function<void(const absl::Status&)>;

  // `jobs` outlives it. It lives until the answer has ended. Any thread.
  static void Begin(JobsClient* jobs, const v1::FileId& id,
                    std::shared_ptr<http::Responder> responder, Refuse refuse);

  ClientDownload(JobsClient* jobs, v1::FileId id, std::shared_ptr<http::Responder> responder,
                 Refuse refuse);

 private:
  class Stream;

  // Of a stream's next bytes, which begin at `at` of the file. False: no more for now.
  bool Send(uint64_t at, std::string bytes);
  void OnDrained();
  void OnGone();
  void Ended(const absl::Status& status);

  JobsClient* const jobs_;
  const v1::FileId id_;
  const std::shared_ptr<http::Responder> responder_;
  const Refuse refuse_;
  std::mutex mu_;  // guards all below
  std::shared_ptr<Stream> stream_;
  uint64_t sent_bytes_ = 0;
  bool headed_ = false;
  bool gone_ = false;
};

}  // namespace skein::services
