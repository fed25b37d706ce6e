// ServerStream and ClientStream: the two ends of a gRPC stream on which both sides send.
//
// Messages travel in batches. Messages that are written while a batch is being sent form the next
// batch. All batches that have arrived when the owner's thread is free are handled in one run. So a
// busy stream costs few system calls and wake-ups, and an idle one delays nothing.
// Batches are read ahead of the owner up to a limit (ReadAhead), so a slow side stops the other
// through gRPC's flow control. The owner bounds the queue of written messages (MessageCounters).
//
// InBatch and OutBatch are protobuf messages with one field, `repeated … messages`.
//
// `run` takes the stream's hooks to the thread that owns them, in order: a loop's PostFirst, or in
// place. A stream keeps itself alive until gRPC is done with it. Holders keep a shared_ptr and may
// Write and Close at any time, on any thread; calls after the end have no effect.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"
#include "services/rpc/rpc.h"

namespace skein::services {

using RunHook = std::function<void(std::function<void()>)>;

// The messages that one batch carries.
template <typename Batch>
using MessageOf = std::decay_t<decltype(std::declval<Batch>().messages(0))>;

// Batches that were read and are not handled yet. The stream's lock guards it.
template <typename Batch>
class ReadAhead {
 public:
  // Reading goes on while less than this waits.
  static constexpr size_t kBatchesMax = 64;
  static constexpr size_t kBytesMax = size_t{1} << 20;

  // True: nothing waited before, so the caller has to schedule the handling.
  bool Add(Batch batch) {
    bytes_ += batch.ByteSizeLong();
    batches_.push_back(std::move(batch));
    return batches_.size() == 1;
  }
  bool HasRoom() const { return batches_.size() < kBatchesMax && bytes_ < kBytesMax; }
  std::vector<Batch> TakeAll() {
    bytes_ = 0;
    return std::exchange(batches_, {});
  }

 private:
  std::vector<Batch> batches_;
  size_t bytes_ = 0;
};

// Hands each message over until `closed()`.
template <typename Batch, typename OnMessage, typename Closed>
void HandleBatches(const std::vector<Batch>& batches, const OnMessage& message, Closed closed) {
  for (const Batch& batch : batches) {
    if (batch.messages_size() == 0 && !closed()) message(MessageOf<Batch>());
    for (const auto& one : batch.messages()) {
      if (closed()) return;
      message(one);
    }
  }
}

// Messages that wait to be written, and the batch that is being written. The stream's lock guards
// it.
template <typename Batch>
class WriteQueue {
 public:
  // A batch takes no further message once it has so many bytes.
  static constexpr size_t kBatchBytes = size_t{64} << 10;

  void Add(MessageOf<Batch> message) { queue_.push_back(std::move(message)); }
  bool empty() const { return queue_.empty(); }
  void Clear() { queue_.clear(); }
  // The next batch; valid until the next call. REQUIRES: not empty, and the former was written.
  const Batch* Next() {
    batch_.clear_messages();
    for (size_t bytes = 0; !queue_.empty() && bytes < kBatchBytes; queue_.pop_front()) {
      bytes += queue_.front().ByteSizeLong();
      *batch_.add_messages() = std::move(queue_.front());
    }
    return &batch_;
  }

 private:
  std::deque<MessageOf<Batch>> queue_;
  Batch batch_;
};

template <typename InBatch, typename OutBatch>
class ServerStream : public grpc::ServerBidiReactor<InBatch, OutBatch> {
 public:
  using In = MessageOf<InBatch>;
  using Out = MessageOf<OutBatch>;
  struct Hooks {
    std::function<void(const In&)> message;  // an empty batch counts as an empty message
    std::function<void()> ended;             // at most once, the last hook; not after Close
  };
  static constexpr auto kLastWriteMax = std::chrono::seconds(1);

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
    queue_.Add(std::move(message));
    Advance();
  }

  // Drops unsent messages. No further hook runs, except for a message being handled now. The client
  // gets `status`, unless it does not read what is being sent within kLastWriteMax: then CANCELLED.
  void Close(grpc::Status status) {
    std::lock_guard lock(mu_);
    closed_ = true;
    if (std::exchange(closing_, true)) return;
    queue_.Clear();
    status_ = std::move(status);
    if (writing_) CancelLater();
    Advance();
  }

  void OnReadDone(bool ok) override {
    // In order: what was read before the end is handled before it.
    if (!ok) {
      return run_([self = self_] {
        self->Deal();
        self->Over();
      });
    }
    bool first = false;
    {
      std::lock_guard lock(mu_);
      first = arrived_.Add(std::move(in_));
      in_.Clear();
      reading_ = !closing_ && arrived_.HasRoom();
      if (reading_) this->StartRead(&in_);
    }
    if (first) run_([self = self_] { self->Deal(); });
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (!ok) queue_.Clear();
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

  bool closed() {
    std::lock_guard lock(mu_);
    return closed_;
  }

  void Deal() {
    std::lock_guard dealing(deal_mu_);
    std::vector<InBatch> batches;
    {
      std::lock_guard lock(mu_);
      batches = arrived_.TakeAll();
    }
    HandleBatches(batches, hooks_.message, [this] { return closed(); });
    std::lock_guard lock(mu_);
    if (closing_ || std::exchange(reading_, true)) return;
    this->StartRead(&in_);
  }

  void Over() {
    std::shared_ptr<ServerStream> self;
    {
      std::lock_guard lock(mu_);
      if (closing_) return;
      self = self_;
      closing_ = true;
      queue_.Clear();
      status_ = grpc::Status::CANCELLED;
      Advance();
    }
    run_([self] {
      if (!self->closed()) self->hooks_.ended();
    });
  }

  // REQUIRES: mu_ held, `writing_`. The alarm keeps its function as long as it lives, and this
  // stream owns it, so the function must not own the stream.
  void CancelLater() {
    unread_ = std::make_unique<grpc::Alarm>();
    const auto cancel_at = std::chrono::system_clock::now() + kLastWriteMax;
    unread_->Set(cancel_at, [stream = std::weak_ptr<ServerStream>(self_)](bool) {
      const std::shared_ptr<ServerStream> self = stream.lock();
      if (self == nullptr) return;
      std::lock_guard lock(self->mu_);
      if (self->self_ != nullptr && self->writing_) self->context_->TryCancel();
    });
  }

  // REQUIRES: mu_ held. Starts the next write, or the finish, if neither is in progress.
  void Advance() {
    if (writing_ || finishing_) return;
    if (closing_) {
      if (unread_ != nullptr) unread_->Cancel();
      finishing_ = true;
      this->Finish(status_);
    } else if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(queue_.Next());
    }
  }

  grpc::CallbackServerContext* const context_;
  const RunHook run_;
  Hooks hooks_;
  InBatch in_;          // while `reading_`
  std::mutex deal_mu_;  // messages are handled one after the other, also in place
  std::mutex mu_;
  ReadAhead<InBatch> arrived_;
  WriteQueue<OutBatch> queue_;
  bool reading_ = true;  // from Open on
  bool writing_ = false;
  bool closing_ = false;  // no further read or write starts
  bool closed_ = false;   // by this side: no further hook runs
  bool finishing_ = false;
  grpc::Status status_;
  std::unique_ptr<grpc::Alarm> unread_;  // ends what the client does not read, after Close
  std::shared_ptr<ServerStream> self_;
};

template <typename OutBatch, typename InBatch>
class ClientStream : public grpc::ClientBidiReactor<OutBatch, InBatch> {
 public:
  using Out = MessageOf<OutBatch>;
  using In = MessageOf<InBatch>;
  struct Hooks {
    std::function<void(const In&)> message;   // an empty batch counts as an empty message
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
    queue_.Add(std::move(message));
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
    bool first = false;
    {
      std::lock_guard lock(mu_);
      if (ok) {
        first = arrived_.Add(std::move(in_));
        in_.Clear();
        reading_ = !over_ && arrived_.HasRoom();
        if (reading_) this->StartRead(&in_);
      } else if (std::exchange(over_, true)) {
        return;
      }
    }
    if (!ok) return this->RemoveHold();
    if (first) run_([self = self_] { self->Deal(); });
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (!ok || over_) queue_.Clear();  // a failed read means the stream has ended
    Advance();
  }

  void OnDone(const grpc::Status& status) override {
    run_([self = self_, status] {
      self->Deal();
      if (!self->closed()) self->hooks_.ended(EndOfCall(status, self->peer_, self->context_));
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

  bool closed() {
    std::lock_guard lock(mu_);
    return closed_;
  }

  void Deal() {
    std::lock_guard dealing(deal_mu_);
    std::vector<InBatch> batches;
    {
      std::lock_guard lock(mu_);
      batches = arrived_.TakeAll();
    }
    HandleBatches(batches, hooks_.message, [this] { return closed(); });
    std::lock_guard lock(mu_);
    if (over_ || std::exchange(reading_, true)) return;
    this->StartRead(&in_);
  }

  // REQUIRES: mu_ held.
  void Advance() {
    if (writing_ || over_ || queue_.empty()) return;
    writing_ = true;
    this->StartWrite(queue_.Next());
  }

  const char* const peer_;
  CallTracker* const tracker_;
  const RunHook run_;
  Hooks hooks_;
  grpc::ClientContext context_;
  InBatch in_;          // while `reading_`
  std::mutex deal_mu_;  // messages are handled one after the other, also in place
  std::mutex mu_;
  ReadAhead<InBatch> arrived_;
  WriteQueue<OutBatch> queue_;
  bool reading_ = true;  // from Open on
  bool writing_ = false;
  bool over_ = false;    // the hold is released: no further read or write starts
  bool closed_ = false;  // by this side: no further hook runs
  std::shared_ptr<ClientStream> self_;
};

}  // namespace skein::services
