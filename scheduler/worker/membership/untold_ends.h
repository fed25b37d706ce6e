// UntoldEnds: the ends of requests that the orchestrator has not acknowledged. Each message to it
// lists all of them, until one is answered. Part of Membership.
//
// Bounded: at most kMax are remembered. The oldest go first; an orchestrator that was away for so
// long has failed them.
//
// Invariants (CheckInvariants): there are at most kMax; no more are unanswered than there are.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

class UntoldEnds {
 public:
  static constexpr size_t kMax = 65536;

  // `alive_until_us`: as Membership::Ended has it.
  void Add(EndedRequest ended, TimeUs alive_until_us);
  bool empty() const { return ended_.empty(); }
  size_t size() const { return ended_.size(); }

  // All of them, in a message that is unanswered from now on.
  std::vector<EndedRequest> Send();
  void Answered();    // the message was answered: forget the ends that it listed
  void Unanswered();  // no answer will come: send them again
  size_t unanswered() const { return unanswered_; }

  // The engine failed under one of them that may live: the orchestrator must not forget it.
  bool HasEvidence(TimeUs now) const;
  absl::Status CheckInvariants() const;

 private:
  std::deque<EndedRequest> ended_;
  size_t unanswered_ = 0;         // the first so many are in the message under way
  TimeUs evidence_until_us_ = 0;  // the last of those under which the engine failed lives no longer
};

}  // namespace skein::scheduler
