// StreamWriter: the server side of a gRPC server-stream, written to from any thread.
//
// Messages are queued and sent one at a time; the queue is bounded by what the request may produce,
// so a slow reader costs memory, never a blocked core. `on_cancel` runs once, on a gRPC thread, if
// the client goes away or cancels before Close. The reactor keeps itself alive until gRPC is done
// with it; holders keep a shared_ptr and may write at any time: what comes after the end is
// dropped.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "grpcpp/grpcpp.h"

namespace skein::services {

template <typename Message>
class StreamWriter : public grpc::ServerWriteReactor<Message> {
 public:
  // The raw pointer goes back to gRPC from the method's handler.
  static std::shared_ptr<StreamWriter> Make(std::function<void()> on_cancel) {
    std::shared_ptr<StreamWriter> writer(new StreamWriter(std::move(on_cancel)));
    writer->self_ = writer;
    return writer;
  }

  void Write(Message message) {
    std::lock_guard lock(mu_);
    if (closing_) return;
    queue_.push_back(std::move(message));
    Advance();
  }

  // Ends the stream with `status` after what was written. Later calls are ignored.
  void Close(grpc::Status status) {
    std::lock_guard lock(mu_);
    if (closing_) return;
    closing_ = true;
    status_ = std::move(status);
    Advance();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();
    Advance();
  }

  void OnCancel() override {
    std::function<void()> on_cancel;
    {
      std::lock_guard lock(mu_);
      if (!closing_) {
        on_cancel = std::exchange(on_cancel_, nullptr);
        closing_ = true;
        status_ = grpc::Status::CANCELLED;
      }
      while (queue_.size() > (writing_ ? 1u : 0u)) queue_.pop_back();
      Advance();
    }
    if (on_cancel) on_cancel();
  }

  void OnDone() override {
    std::shared_ptr<StreamWriter> self;  // released last, after the lock
    std::lock_guard lock(mu_);
    self = std::move(self_);
    on_cancel_ = nullptr;
  }

 private:
  explicit StreamWriter(std::function<void()> on_cancel) : on_cancel_(std::move(on_cancel)) {}

  // REQUIRES: mu_ held. Starts the next write, or the finish, when nothing is under way.
  void Advance() {
    if (writing_ || finishing_) return;
    if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(&queue_.front());
    } else if (closing_) {
      finishing_ = true;
      this->Finish(status_);
    }
  }

  std::mutex mu_;
  std::deque<Message> queue_;  // the front is being written while `writing_`
  bool writing_ = false;
  bool closing_ = false;
  bool finishing_ = false;
  grpc::Status status_;
  std::function<void()> on_cancel_;
  std::shared_ptr<StreamWriter> self_;
};

}  // namespace skein::services
