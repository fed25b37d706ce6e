// MessageCounters: session, sequence and acknowledgement of the messages on a bidirectional stream.
// gRPC keeps the order; these numbers verify it, and tell when the other side has stopped reading.
// One thread; `now_us` is MonotonicUs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::services {

class MessageCounters {
 public:
  // The other side is stuck when more than so many messages are unacknowledged, and none was
  // acknowledged for so long. One event alone may send more messages: the welcome of a router with
  // many requests. Each side sends a report, hence an acknowledgement, several times in that time.
  static constexpr uint64_t kUnacknowledgedMax = 16384;
  static constexpr int64_t kStuckUs = 5'000'000;

  // The side that chooses the session number passes it. The other side passes 0 and learns it from
  // the first message. Until then its own messages say 0, and acknowledge none.
  explicit MessageCounters(uint64_t session = 0)
      : session_(session), gives_session_(session != 0) {}

  // Replaces the constructor's session number. For the side that chooses it, before its first
  // message.
  void Renumber(uint64_t session) { session_ = session; }

  // Numbers a message before it is sent.
  template <typename Message>
  void Stamp(Message* message, int64_t now_us) {
    if (unacknowledged() == 0) progress_us_ = now_us;
    message->set_session(session_);
    message->set_sequence(++sent_);
    message->set_acknowledged(handled_);
  }

  // Checks the numbers of a received message. INVALID_ARGUMENT names the wrong one.
  template <typename Message>
  absl::Status Take(const Message& message, int64_t now_us) {
    if (!gives_session_ && handled_ == 0) session_ = message.session();
    const bool may_be_early = handled_ == 0 || !SKEIN_PLANT(early_message_refused);
    const bool not_learnt = gives_session_ && message.acknowledged() == 0 && may_be_early;
    const uint64_t expected = not_learnt ? 0 : session_;
    if (message.session() != expected || session_ == 0) {
      return Wrong("session", message.session(), expected);
    }
    if (message.sequence() != handled_ + 1) {
      return Wrong("sequence", message.sequence(), handled_ + 1);
    }
    if (message.acknowledged() < acknowledged_ || message.acknowledged() > sent_) {
      return absl::InvalidArgumentError(absl::StrCat("acknowledged: ", message.acknowledged(),
                                                     " is not between ", acknowledged_, " and ",
                                                     sent_));
    }
    if (message.acknowledged() > acknowledged_) progress_us_ = now_us;
    acknowledged_ = message.acknowledged();
    ++handled_;
    return absl::OkStatus();
  }

  uint64_t session() const { return session_; }
  bool Stuck(int64_t now_us) const {
    return unacknowledged() >= kUnacknowledgedMax && now_us - progress_us_ >= kStuckUs;
  }

 private:
  uint64_t unacknowledged() const { return sent_ - acknowledged_; }
  static absl::Status Wrong(const char* field, uint64_t value, uint64_t expected) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ", expected ", expected));
  }

  uint64_t session_ = 0;
  bool gives_session_ = false;
  uint64_t sent_ = 0;
  uint64_t handled_ = 0;       // of the other side's messages
  uint64_t acknowledged_ = 0;  // of this side's messages
  // When the other side last acknowledged a message, or the first of those outstanding was sent.
  int64_t progress_us_ = 0;
};

}  // namespace skein::services
