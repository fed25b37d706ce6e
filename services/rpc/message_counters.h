// MessageCounters: session, sequence and acknowledgement of the messages on a bidirectional stream.
// gRPC keeps the order; these numbers verify it, and limit how many unread messages a slow side may
// leave. One thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::services {

class MessageCounters {
 public:
  // Far more than two processes send each other between two reports.
  static constexpr uint64_t kUnacknowledgedMax = 16384;

  // The side that chooses the session number passes it. The other side passes 0 and learns it from
  // the first message.
  explicit MessageCounters(uint64_t session = 0)
      : session_(session), gives_session_(session != 0) {}

  // Replaces the constructor's session number. For the side that chooses it, before its first
  // message.
  void Renumber(uint64_t session) { session_ = session; }

  // Numbers a message before it is sent.
  template <typename Message>
  void Stamp(Message* message) {
    message->set_session(session_);
    message->set_sequence(++sent_);
    message->set_acknowledged(handled_);
  }

  // Checks the numbers of a received message. INVALID_ARGUMENT names the wrong one.
  template <typename Message>
  absl::Status Take(const Message& message) {
    const bool first = handled_ == 0;
    if (!gives_session_ && first) session_ = message.session();
    const uint64_t expected = gives_session_ && first ? 0 : session_;
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
    acknowledged_ = message.acknowledged();
    ++handled_;
    return absl::OkStatus();
  }

  uint64_t session() const { return session_; }
  uint64_t unacknowledged() const { return sent_ - acknowledged_; }

 private:
  static absl::Status Wrong(const char* field, uint64_t value, uint64_t expected) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, ", expected ", expected));
  }

  uint64_t session_ = 0;
  bool gives_session_ = false;
  uint64_t sent_ = 0;
  uint64_t handled_ = 0;       // of the other side's messages
  uint64_t acknowledged_ = 0;  // of this side's messages
};

}  // namespace skein::services
