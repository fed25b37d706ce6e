// ReadStream: the client side of a gRPC server-stream, driven by a loop. A message is read only
// when the loop has dealt with the one before, so a stream holds one message at the most and a
// reader that pauses stops the sender through gRPC's flow control.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "services/base/loop.h"
#include "services/base/rpc.h"

namespace skein::services {

template <typename Message>
class ReadStream : public grpc::ClientReadReactor<Message> {
 public:
  struct Hooks {
    std::function<void(const Message&)> message;  // on the loop, not after Close
    std::function<void(absl::Status)> ended;      // on the loop, at most once, not after Close
    std::function<void()> done;  // on a gRPC thread, once, the last thing that happens
  };

  // `start` calls the stub's async method of `peer`, a role as FromGrpc takes it, with context and
  // reactor. Call on the loop. The stream keeps itself alive until gRPC is done with it.
  template <typename Start>
  static std::shared_ptr<ReadStream> Open(const char* peer, Loop* loop, int64_t timeout_us,
                                          const std::string& traceparent, Hooks hooks,
                                          Start start) {
    std::shared_ptr<ReadStream> stream(new ReadStream(peer, loop, std::move(hooks)));
    stream->self_ = stream;
    stream->context_.set_deadline(std::chrono::system_clock::now() +
                                  std::chrono::microseconds(timeout_us));
    if (!traceparent.empty()) stream->context_.AddMetadata("traceparent", traceparent);
    start(&stream->context_, stream.get());
    stream->AddHold();  // reads are started from the loop
    stream->StartRead(&stream->message_);
    stream->StartCall();
    return stream;
  }

  // The rest on the loop. Close: the other side sees the call cancelled; no hook but done follows.
  void Close() {
    if (std::exchange(closed_, true)) return;
    context_.TryCancel();
    if (idle_) Release();
  }
  void Pause() { paused_ = true; }
  void Resume() {
    paused_ = false;
    if (idle_ && !closed_) Next();
  }

 private:
  ReadStream(const char* peer, Loop* loop, Hooks hooks)
      : peer_(peer), loop_(loop), hooks_(std::move(hooks)) {}

  void OnReadDone(bool ok) override {
    if (!ok) return this->RemoveHold();
    loop_->Post([self = self_] { self->Deal(); });
  }

  void OnDone(const grpc::Status& status) override {
    loop_->Post([self = self_, status] {
      if (!std::exchange(self->closed_, true)) {
        self->hooks_.ended(EndOfCall(status, self->peer_, self->context_));
      }
      self->hooks_.message = nullptr;  // they may own what owns this
      self->hooks_.ended = nullptr;
    });
    const std::function<void()> done = hooks_.done;
    self_.reset();
    done();
  }

  void Deal() {
    idle_ = true;
    if (!closed_) hooks_.message(message_);
    if (closed_) return Release();
    if (!paused_) Next();
  }

  void Next() {
    idle_ = false;
    message_.Clear();
    this->StartRead(&message_);
  }

  // No read is under way and none will be: gRPC may finish the call.
  void Release() {
    if (!std::exchange(idle_, false)) return;
    this->RemoveHold();
  }

  const char* const peer_;
  Loop* const loop_;
  Hooks hooks_;
  grpc::ClientContext context_;
  Message message_;
  // On the loop.
  bool idle_ = false;  // no read is outstanding
  bool paused_ = false;
  bool closed_ = false;
  std::shared_ptr<ReadStream> self_;
};

}  // namespace skein::services
