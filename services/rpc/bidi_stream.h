// ServerStream and ClientStream: the two ends of a gRPC stream on which both sides send.
//
// Messages travel in batches. Messages that are written while a batch is being sent, or queued
// until a Flush, form the next batch. All batches that have arrived when the owner's thread is free
// are handled in one run. So a busy stream costs few system calls and wake-ups, and an idle one
// delays nothing. Batches are read ahead of the owner up to a limit (ReadAhead), so a slow side
// stops the other through gRPC's flow control. The owner bounds the queue of written messages: by
// MessageCounters, or by writing only when Writable, so that at most one message waits here.
//
// InBatch and OutBatch are protobuf messages with one field, `repeated … messages`. A protobuf
// message without a field of this name is a batch of one message, itself.
//
// A client that opens a stream and sends nothing does not keep it: ServerStream ends it with
// DEADLINE_EXCEEDED after kFirstMessageMax.
//
// `run` takes the stream's hooks to the thread that owns them, in order: a loop's Post or
// PostFirst, or in place. A stream keeps itself alive until gRPC is done with it. Holders keep a
// shared_ptr and may Write and Close at any time, on any thread; calls after the end have no
// effect.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/server_callback.h"
#include "services/rpc/rpc.h"
#include "services/rpc/stream_batches.h"

namespace skein::services {

using RunHook = std::function<void(std::function<void()>)>;

template <typename InBatch, typename OutBatch>
class ServerStream : public grpc::ServerBidiReactor<InBatch, OutBatch> {
 public:
  using In = MessageOf<InBatch>;
  using Out = MessageOf<OutBatch>;
  struct Hooks {
    std::function<void(const In&)> message;    // an empty batch counts as an empty message
    std::function<void()> ended;               // at most once, the last hook; not after Close
    std::function<void()> writable = nullptr;  // once after a Writable that was false
  };
  static constexpr auto kLastWriteMax = std::chrono::seconds(1);
  // From Open until the client's first message.
  static constexpr std::chrono::milliseconds kFirstMessageMax{10'000};

  // The method's handler returns this pointer to gRPC, after Open. `half_closed`: how the call ends
  // when the client half-closes it, or sends what is no message of the method: gRPC does not tell
  // these two apart.
  static std::shared_ptr<ServerStream> Make(
      grpc::CallbackServerContext* context, RunHook run,
      grpc::Status half_closed = grpc::Status::CANCELLED,
      std::chrono::milliseconds first_message_max = kFirstMessageMax) {
    std::shared_ptr<ServerStream> stream(
        new ServerStream(context, std::move(run), std::move(half_closed), first_message_max));
    stream->self_ = stream;
    return stream;
  }
  // Without effect after Close.
  void Open(Hooks hooks) {
    std::lock_guard lock(mu_);
    hooks_ = std::move(hooks);
    if (closing_) return;
    first_message_.Set(std::chrono::system_clock::now() + first_message_max_,
                       [weak = std::weak_ptr(self_)](bool due) {
                         const auto self = due ? weak.lock() : nullptr;
                         if (self != nullptr) self->EndUnlessReceived();
                       });
    this->StartRead(&in_);
  }

  // Whether nothing that was written waits. False after the end, and no hook follows then.
  bool Writable() {
    std::lock_guard lock(mu_);
    if (closing_) return false;
    wanted_ = writing_ || !queue_.empty();
    return !wanted_;
  }

  void Write(Out message) {
    if (Queue(std::move(message))) Flush();
  }
  // The same in two parts, for an owner that has more to write. True: Flush has to follow, once.
  [[nodiscard]] bool Queue(Out message) {
    std::lock_guard lock(mu_);
    if (closing_) return false;
    const bool first = queue_.empty() && !writing_;
    queue_.Add(std::move(message));
    return first;
  }
  void Flush() {
    std::lock_guard lock(mu_);
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
        self->Over(self->half_closed_);
      });
    }
    bool first = false;
    {
      std::lock_guard lock(mu_);
      if (!std::exchange(received_, true)) first_message_.Cancel();
      first = arrived_.Add(std::move(in_));
      in_.Clear();
    }
    // Before the next read, which gRPC announces to the peer with a message of its own: if the
    // owner handles the batch in place, its answers go out first.
    if (first) run_([self = self_] { self->Deal(); });
    std::lock_guard lock(mu_);
    reading_ = !closing_ && arrived_.HasRoom();
    if (reading_) this->StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    std::shared_ptr<ServerStream> self;  // if the owner waits for this
    {
      std::lock_guard lock(mu_);
      writing_ = false;
      if (!ok) queue_.Clear();
      Advance();
      if (!writing_ && !closing_ && std::exchange(wanted_, false)) self = self_;
    }
    if (self == nullptr) return;
    run_([self] {
      if (!self->closed()) self->hooks_.writable();
    });
  }

  void OnCancel() override { Over(grpc::Status::CANCELLED); }

  void OnDone() override {
    std::shared_ptr<ServerStream> self;  // released last, after the lock
    std::lock_guard lock(mu_);
    self = std::move(self_);
  }

 private:
  ServerStream(grpc::CallbackServerContext* context, RunHook run, grpc::Status half_closed,
               std::chrono::milliseconds first_message_max)
      : context_(context),
        run_(std::move(run)),
        half_closed_(std::move(half_closed)),
        first_message_max_(first_message_max) {}

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

  void EndUnlessReceived() {
    {
      std::lock_guard lock(mu_);
      if (received_) return;
    }
    Over({grpc::StatusCode::DEADLINE_EXCEEDED,
          absl::StrCat("the stream's first message did not come within ",
                       first_message_max_.count(), " ms")});
  }

  void Over(const grpc::Status& status) {
    std::shared_ptr<ServerStream> self;
    {
      std::lock_guard lock(mu_);
      if (closing_) return;
      self = self_;
      closing_ = true;
      queue_.Clear();
      status_ = status;
      Advance();
    }
    run_([self] {
      {
        std::lock_guard lock(self->mu_);
        if (std::exchange(self->closed_, true)) return;  // it is the last hook
      }
      self->hooks_.ended();
    });
  }

  // REQUIRES: mu_ held, `writing_`. The alarm keeps its function as long as it lives, and this
  // stream owns it, so the function must not own the stream.
  void CancelLater() {
    unread_ = std::make_unique<grpc::Alarm>();
    unread_->Set(std::chrono::system_clock::now() + kLastWriteMax,
                 [weak = std::weak_ptr(self_)](bool due) {
                   const auto self = due ? weak.lock() : nullptr;
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
      first_message_.Cancel();
      finishing_ = true;
      this->Finish(status_);
    } else if (!queue_.empty()) {
      writing_ = true;
      this->StartWrite(queue_.Next());
    }
  }

  grpc::CallbackServerContext* const context_;
  const RunHook run_;
  const grpc::Status half_closed_;
  const std::chrono::milliseconds first_message_max_;
  Hooks hooks_;
  InBatch in_;          // while `reading_`
  std::mutex deal_mu_;  // messages are handled one after the other, also in place
  std::mutex mu_;
  ReadAhead<InBatch> arrived_;
  WriteQueue<OutBatch> queue_;
  bool reading_ = true;  // from Open on
  bool writing_ = false;
  bool wanted_ = false;   // the owner waits for `writable`
  bool closing_ = false;  // no further read or write starts
  bool closed_ = false;   // by this side, or told as ended: no further hook runs
  bool finishing_ = false;
  grpc::Status status_;
  bool received_ = false;                // anything
  grpc::Alarm first_message_;            // ends a stream on which nothing is received
  std::unique_ptr<grpc::Alarm> unread_;  // ends what the client does not read, after Close
  std::shared_ptr<ServerStream> self_;
};

template <typename OutBatch, typename InBatch>
class ClientStream : public grpc::ClientBidiReactor<OutBatch, InBatch> {
 public:
  using Out = MessageOf<OutBatch>;
  using In = MessageOf<InBatch>;
  struct Hooks {
    std::function<void(const In&)> message;    // an empty batch counts as an empty message
    std::function<void(absl::Status)> ended;   // at most once, the last hook; not after Close
    std::function<void()> writable = nullptr;  // once after a Writable that was false
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

  // Whether nothing that was written waits. False after the end, and no hook follows then.
  bool Writable() {
    std::lock_guard lock(mu_);
    if (over_) return false;
    wanted_ = writing_ || !queue_.empty();
    return !wanted_;
  }

  void Write(Out message) {
    if (Queue(std::move(message))) Flush();
  }
  // The same in two parts, for an owner that has more to write. True: Flush has to follow, once.
  [[nodiscard]] bool Queue(Out message) {
    std::lock_guard lock(mu_);
    if (over_) return false;
    const bool first = queue_.empty() && !writing_;
    queue_.Add(std::move(message));
    return first;
  }
  void Flush() {
    std::lock_guard lock(mu_);
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
      } else if (std::exchange(over_, true)) {
        return;
      }
    }
    if (!ok) return this->RemoveHold();
    if (first) run_([self = self_] { self->Deal(); });  // before the next read, as in ServerStream
    std::lock_guard lock(mu_);
    reading_ = !over_ && arrived_.HasRoom();
    if (reading_) this->StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    bool wanted = false;
    {
      std::lock_guard lock(mu_);
      writing_ = false;
      if (!ok || over_) queue_.Clear();  // a failed read means the stream has ended
      Advance();
      wanted = !writing_ && !over_ && std::exchange(wanted_, false);
    }
    if (!wanted) return;
    run_([self = self_] {
      if (!self->over()) self->hooks_.writable();
    });
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
  bool over() {
    std::lock_guard lock(mu_);
    return over_;
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
  bool wanted_ = false;  // the owner waits for `writable`
  bool over_ = false;    // the hold is released: no further read or write starts
  bool closed_ = false;  // by this side: no further hook runs
  std::shared_ptr<ClientStream> self_;
};

}  // namespace skein::services
