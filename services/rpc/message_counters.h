// MessageCounters: the session, sequence and acknowledgement of the messages on a stream on which
// both sides send. gRPC keeps their order; these numbers prove it, and bound what a side that does
// not read may leave unread. One thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::services {

class MessageCounters {
 public:
  // Far above what two processes have to tell each other between two reports.
  static constexpr uint64_t kUnacknowledgedMax = 16384;

  // The side that gives the session its number says it here; to the other side it is 0 until the
  // first message comes.
  explicit MessageCounters(uint64_t session = 0)
      : session_(session), gives_session_(session != 0) {}

  // Of the side that gives the session, before it has sent anything: another number than the
  // constructor's.
  void Renumber(uint64_t session) { session_ = session; }

  // Numbers a message that is about to be sent.
  template <typename Message>
  void Stamp(Message* message) {
    message->set_session(session_);
    message->set_sequence(++sent_);
    message->set_acknowledged(handled_);
  }

  // Checks the numbers of a message that has come. INVALID_ARGUMENT names the one that is wrong.
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
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", value, ", where ", expected, " is due"));
  }

  uint64_t session_ = 0;
  bool gives_session_ = false;
  uint64_t sent_ = 0;
  uint64_t handled_ = 0;       // of the other side's messages
  uint64_t acknowledged_ = 0;  // of this side's messages
};

}  // namespace skein::services
