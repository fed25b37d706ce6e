#include "services/router/spans/traced_responder.h"

#include <functional>
#include <string>
#include <utility>

#include "services/shell/loop.h"

namespace skein::services {
namespace {

class TracedResponder : public http::Responder {
 public:
  TracedResponder(std::shared_ptr<RequestSpans> spans, std::shared_ptr<http::Responder> inner)
      : spans_(std::move(spans)), inner_(std::move(inner)) {}
  // Dropped unanswered: the server answers 500.
  ~TracedResponder() override { spans_->End(status_, "internal_error", MonotonicUs()); }

  void Send(http::Response response) override {
    spans_->End(response.status, response.error_code, MonotonicUs());
    inner_->Send(std::move(response));
  }
  void StartStream(http::Response head) override {
    status_ = head.status;
    inner_->StartStream(std::move(head));
  }
  bool Write(std::string piece) override { return inner_->Write(std::move(piece)); }
  void Finish() override {
    spans_->End(status_, "", MonotonicUs());
    inner_->Finish();
  }
  void Abort() override {
    spans_->End(status_, "aborted", MonotonicUs());
    inner_->Abort();
  }
  void Watch(std::function<void(http::Gone)> gone, std::function<void()> drained) override {
    inner_->Watch(std::move(gone), std::move(drained));
  }

 private:
  const std::shared_ptr<RequestSpans> spans_;
  const std::shared_ptr<http::Responder> inner_;
  int status_ = 500;
};

}  // namespace

std::shared_ptr<http::Responder> Traced(std::shared_ptr<RequestSpans> spans,
                                        std::shared_ptr<http::Responder> responder) {
  return std::make_shared<TracedResponder>(std::move(spans), std::move(responder));
}

}  // namespace skein::services
