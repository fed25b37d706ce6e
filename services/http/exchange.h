// The Responder of one request on one connection. Internal to services/http.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "services/http/responder.h"

namespace skein::services::http {

class Connection;

class Exchange : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  // `serial` identifies this exchange on its connection. `chunked`: the client speaks HTTP/1.1, so
  // pieces are sent as chunks.
  Exchange(std::shared_ptr<Connection> connection, uint64_t serial, bool chunked);
  ~Exchange() override;

  void Send(Response response) override;
  void StartStream(Response head) override;
  bool Write(std::string piece) override;
  void Finish() override;
  void Abort() override;
  void Watch(std::function<void(Gone)> gone, std::function<void()> drained) override;

  // Called by the connection, on its strand.
  void OnGone(Gone why);
  void OnSent();

 private:
  enum class Phase { kOpen, kStreaming, kEnded };

  // Ends the exchange once; true for the first caller.
  bool End();
  void ForgetCallbacks();
  template <typename F>
  void Post(F f);

  const std::shared_ptr<Connection> connection_;
  const uint64_t serial_;
  const bool chunked_;
  std::atomic<Phase> phase_{Phase::kOpen};
  std::atomic<bool> full_{false};
  std::mutex mutex_;
  std::function<void(Gone)> gone_;  // guarded by mutex_
  std::function<void()> drained_;   // guarded by mutex_
  std::optional<Gone> gone_why_;    // guarded by mutex_
  bool watched_ = false;            // guarded by mutex_
  bool drained_before_ = false;     // drained before Watch; guarded by mutex_
};

}  // namespace skein::services::http
