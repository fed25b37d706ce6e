// OrchestratorStream: the one stream of a worker or router to the orchestrator. It numbers sent
// messages, checks received ones (the first is the welcome, whose generation matches the session),
// and drops messages of an older stream. The owner decides when to open one. What is sent within
// one round of the loop leaves in one batch, at the round's end. Calls and tokens of the round are
// sent before it.
//
// Runs on the owner's loop. OutBatch and InBatch: v1::WorkerMessages and v1::OrchestratorMessages,
// or v1::RouterMessages and v1::OrchestratorRouterMessages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "services/codec/answer.h"
#include "services/log/log.h"
#include "services/orchestrator_link/welcome_check.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"

namespace skein::services {

template <typename OutBatch, typename InBatch>
class OrchestratorStream {
 public:
  using Out = MessageOf<OutBatch>;
  using In = MessageOf<InBatch>;
  struct Hooks {
    // Not OK: the message is malformed. The stream is closed, and `broken` follows.
    std::function<absl::Status(const In&)> message;
    // The stream has ended. `welcomed`: the orchestrator had answered on it.
    std::function<void(const absl::Status& why, bool welcomed)> ended;
    // This side closed the stream: a message was malformed, or the orchestrator acknowledged none
    // for too long. Called in a later event, never inside Send.
    std::function<void(const absl::Status& why)> broken;
  };

  // `calls` and `loop` outlive it.
  OrchestratorStream(CallTracker* calls, Loop* loop) : calls_(calls), loop_(loop) {}

  // Before the first Open.
  void Start(Hooks hooks) { hooks_ = std::move(hooks); }

  // Replaces the current stream. `start` calls the stub's method with context and reactor.
  template <typename StartCall>
  void Open(Out hello, StartCall start) {
    Close();
    const uint64_t number = ++streams_;
    counters_ = MessageCounters();
    welcome_ = WelcomeCheck();
    stream_ = Stream::Open(
        "orchestrator", calls_,
        [this](std::function<void()> hook) { loop_->PostFirst(std::move(hook), Loop::kHelp); },
        {.message = [this, number](const In& message) { Take(number, message); },
         .ended = [this, number](const absl::Status& status) { Ended(number, status); }},
        std::move(start));
    Send(std::move(hello));
  }

  // Dropped if there is no stream.
  void Send(Out message) {
    if (stream_ == nullptr) return;
    const int64_t now_us = MonotonicUs();
    if (counters_.Stuck(now_us)) {
      return Break(absl::ResourceExhaustedError("the orchestrator does not acknowledge messages"));
    }
    counters_.Stamp(&message, now_us);
    if (stream_->Queue(std::move(message))) {
      loop_->Defer([stream = stream_] { stream->Flush(); });
    }
  }

  // On the loop, or after the loop has ended. No hook follows.
  void Close() {
    ++streams_;
    if (stream_ != nullptr) stream_->Close();
    stream_.reset();
  }

 private:
  using Stream = ClientStream<OutBatch, InBatch>;

  void Take(uint64_t number, const In& message) {
    if (number != streams_) return;
    absl::Status status = counters_.Take(message, MonotonicUs());
    if (status.ok()) status = welcome_.Take(GenerationOf(message), counters_.session());
    if (status.ok()) status = hooks_.message(message);
    if (!status.ok() && number == streams_) Break(MalformedAnswer("orchestrator", status));
  }

  // Of the welcome; empty: the message is another one.
  static std::optional<uint64_t> GenerationOf(const In& message) {
    if (!message.has_welcome()) return std::nullopt;
    return message.welcome().generation().number();
  }

  void Ended(uint64_t number, const absl::Status& status) {
    if (number != streams_) return;
    stream_.reset();
    ++streams_;
    hooks_.ended(status.ok() ? absl::UnavailableError("the orchestrator ended the stream") : status,
                 welcome_.welcomed());
  }

  // The owner may be handling an event, so the hook runs in a later one.
  void Break(const absl::Status& why) {
    LogWarning("the stream to the orchestrator is closed",
               {{"reason", std::string(why.message())}});
    Close();
    loop_->PostFirst([this, number = streams_, why] {
      if (number == streams_) hooks_.broken(why);
    });
  }

  CallTracker* const calls_;
  Loop* const loop_;
  Hooks hooks_;
  std::shared_ptr<Stream> stream_;  // null: there is none
  uint64_t streams_ = 0;            // grows with each Open and Close
  MessageCounters counters_;
  WelcomeCheck welcome_;
};

}  // namespace skein::services
