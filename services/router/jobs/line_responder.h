// LineResponder: collects the answer to one line of an offline job, in place of a client's
// connection.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "services/http/responder.h"

namespace skein::services {

class LineResponder : public http::Responder {
 public:
  // `answered` runs once, on the thread that answers, unless Cancel comes before. Who drops the
  // request without an answer is understood as a server that stops: 503.
  explicit LineResponder(std::function<void(http::Response)> answered);
  ~LineResponder() override;

  // The answer is not wanted any more: whoever computes it is told.
  void Cancel();
  // Whether somebody waits for the answer.
  bool wanted();

  void Send(http::Response response) override;
  // Lines are answered whole. A stream is an error of ours: 500.
  void StartStream(http::Response head) override;
  bool Write(std::string piece) override;
  void Finish() override {}
  void Abort() override;
  void Watch(std::function<void(http::Gone)> gone, std::function<void()> drained) override;

 private:
  void Answer(http::Response response);

  std::mutex mutex_;
  std::function<void(http::Response)> answered_;  // null: over. Guarded by mutex_
  std::function<void(http::Gone)> gone_;          // guarded by mutex_
  bool cancelled_ = false;                        // guarded by mutex_
};

}  // namespace skein::services
