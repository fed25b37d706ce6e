#include "services/router/jobs/line_responder.h"

#include <utility>

#include "services/http/error.h"

namespace skein::services {

LineResponder::LineResponder(std::function<void(http::Response)> answered)
    : answered_(std::move(answered)) {}

LineResponder::~LineResponder() {
  Answer(
      http::ErrorResponse(503, "The router stopped before the line was answered.", {}, "draining"));
}

void LineResponder::Answer(http::Response response) {
  std::function<void(http::Response)> answered;
  std::function<void(http::Gone)> gone;  // destroyed outside the lock: it may own much
  {
    std::lock_guard lock(mutex_);
    answered.swap(answered_);
    gone.swap(gone_);
  }
  if (answered) answered(std::move(response));
}

void LineResponder::Cancel() {
  std::function<void(http::Response)> answered;
  std::function<void(http::Gone)> gone;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    answered.swap(answered_);
    gone.swap(gone_);
  }
  if (gone) gone(http::Gone::kClient);
}

bool LineResponder::wanted() {
  std::lock_guard lock(mutex_);
  return answered_ != nullptr;
}

void LineResponder::Send(http::Response response) { Answer(std::move(response)); }

void LineResponder::StartStream(http::Response) {
  Answer(http::ErrorResponse(500, "A line of a batch was answered with a stream."));
}

bool LineResponder::Write(std::string) { return true; }

void LineResponder::Abort() {
  Answer(http::ErrorResponse(500, "The answer to a line of a batch was broken off."));
}

void LineResponder::Watch(std::function<void(http::Gone)> gone, std::function<void()>) {
  {
    std::lock_guard lock(mutex_);
    if (!cancelled_) {
      if (answered_) gone_ = std::move(gone);
      return;
    }
  }
  if (gone) gone(http::Gone::kClient);
}

}  // namespace skein::services
