// ServerStream and ClientStream: the two ends of a gRPC stream on which both sides send.
//
// The next message is read only after the previous one was handled, so a slow side stops the other
// through gRPC's flow control. Written messages are queued and sent one at a time; the owner bounds
// the queue (MessageCounters). `run` takes the stream's hooks to the thread that owns them, in
// order: a loop's PostFirst, or in place. A stream keeps itself alive until gRPC is done with it.
// Holders keep a shared_ptr and may Write and Close at any time, on any thread; calls after the end
// have no effect.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"
#include "services/rpc/rpc.h"

namespace skein::services {

using RunHook = std::function<void(std::function<void()>)>;

template <typename In, typename Out>
class ServerStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  struct Hooks {
    std::function<void(const In&)> message;
    std::function<void()> ended;  // at most once, the last hook; not after Close
  };

  // The method's handler returns this pointer to gRPC, after Open.
  static std::shared_ptr<ServerStream> Make(grpc::CallbackServerContext* context, RunHook run) {
    std::shared_ptr<ServerStream> stream(new ServerStream(context, std::move(run)));
    stream->self_ = stream;
    return stream;
  }
  void Open(Hooks hooks) {
    hooks_ = std::move(hooks);
    this->StartRead(&in_);
  }

  void Write(Out message) {
    std::lock_guard lock(mu_);
    if (closing_) return;
    queue_.push_back(std::move(message));
    Advance();
  }

  // Drops unsent messages. No further hook runs, except for a message being handled now.
  void Close(grpc::Status status) {
    std::lock_guard lock(mu_);
    if (closing_) return;
    closing_ = true;
    status_ = std::move(status);
    if (writing_) context_->TryCancel();  // the client may never read it
    Advance();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Over();
    run_([self = self_] { self->Deal(); });
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    queue_.pop_front();
    if (!ok) queue_.clear();
    Advance();
  }

  void OnCancel() override { Over(); }

  void OnDone() override {
    std::shared_ptr<ServerStream> self;  // released last, after the lock
    std::lock_guard lock(mu_);
    self = std::move(self_);
  }

 private:
  ServerStream(grpc::CallbackServerContext* context, RunHook run)
      : context_(context), run_(std::move(run)) {}

  bool closing() {
    std::lock_guard lock(mu_);
    return closing_;
  }

  void Deal() {
    if (closing()) return;
    hooks_.message(in_);
    std::lock_guard lock(mu_);
    if (!closing_) this->StartRead(&in_);
  }

  void Over() {
    std::shared_ptr<ServerStream> self;
    {
      std::lock_guard lock(mu_);
      if (closing_) return;
      self = self_;
      closing_ = true;
      status_ = grpc::Status::CANCELLED;
      Advance();
    }
    run_([self] { self->hooks_.ended(); });
  }

  // REQUIRES: mu_ held. Starts the next write, or the finish, if neither is in progress.
  void Advance() {
    if (writing_ || finishing_) return;
    if (closing_) {
      finishing_ = true;
      this->Finish(status_);
    } else if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(&queue_.front());
    }
  }

  grpc::CallbackServerContext* const context_;
  const RunHook run_;
  Hooks hooks_;
  In in_;
  std::mutex mu_;
  std::deque<Out> queue_;  // the front is being written while `writing_`
  bool writing_ = false;
  bool closing_ = false;
  bool finishing_ = false;
  grpc::Status status_;
  std::shared_ptr<ServerStream> self_;
};

template <typename Out, typename In>
class ClientStream : public grpc::ClientBidiReactor<Out, In> {
 public:
  struct Hooks {
    std::function<void(const In&)> message;
    std::function<void(absl::Status)> ended;  // at most once, the last hook; not after Close
  };

  // `start` calls the stub's async method of `peer` (a role, see FromGrpc) with context and
  // reactor. `tracker` waits for the stream's last callback; the caller of CancelAndWait Closes the
  // stream first.
  template <typename Start>
  static std::shared_ptr<ClientStream> Open(const char* peer, CallTracker* tracker, RunHook run,
                                            Hooks hooks, Start start) {
    std::shared_ptr<ClientStream> stream(
        new ClientStream(peer, tracker, std::move(run), std::move(hooks)));
    stream->self_ = stream;
    tracker->Add(&stream->context_);
    start(&stream->context_, stream.get());
    stream->AddHold();  // reads and writes start outside of gRPC's callbacks
    stream->StartRead(&stream->in_);
    stream->StartCall();
    return stream;
  }

  void Write(Out message) {
    std::lock_guard lock(mu_);
    if (over_) return;
    queue_.push_back(std::move(message));
    Advance();
  }

  // The other side sees the call cancelled. Drops unsent messages.
  void Close() {
    {
      std::lock_guard lock(mu_);
      closed_ = true;
      if (std::exchange(over_, true)) return;
      context_.TryCancel();
    }
    this->RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (ok) return run_([self = self_] { self->Deal(); });
    {
      std::lock_guard lock(mu_);
      if (std::exchange(over_, true)) return;
    }
    this->RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    queue_.pop_front();
    if (!ok || over_) queue_.clear();  // a failed read means the stream has ended
    Advance();
  }

  void OnDone(const grpc::Status& status) override {
    run_([self = self_, status] {
      const bool closed = [&] {
        std::lock_guard lock(self->mu_);
        return self->closed_;
      }();
      if (!closed) self->hooks_.ended(EndOfCall(status, self->peer_, self->context_));
      self->hooks_ = {};  // they may own what owns this
    });
    CallTracker* const tracker = tracker_;
    tracker->Release(&context_);
    self_.reset();
    tracker->Leave();
  }

 private:
  ClientStream(const char* peer, CallTracker* tracker, RunHook run, Hooks hooks)
      : peer_(peer), tracker_(tracker), run_(std::move(run)), hooks_(std::move(hooks)) {}

  bool over() {
    std::lock_guard lock(mu_);
    return over_;
  }

  void Deal() {
    if (over()) return;
    hooks_.message(in_);
    std::lock_guard lock(mu_);
    if (!over_) this->StartRead(&in_);
  }

  // REQUIRES: mu_ held.
  void Advance() {
    if (writing_ || over_ || queue_.empty()) return;
    writing_ = true;
    this->StartWrite(&queue_.front());
  }

  const char* const peer_;
  CallTracker* const tracker_;
  const RunHook run_;
  Hooks hooks_;
  grpc::ClientContext context_;
  In in_;
  std::mutex mu_;
  std::deque<Out> queue_;  // the front is being written while `writing_`
  bool writing_ = false;
  bool over_ = false;    // the hold is released: no further read or write starts
  bool closed_ = false;  // by this side
  std::shared_ptr<ClientStream> self_;
};

}  // namespace skein::services
