// RetryingCall: a call to another process that is repeated until an answer settles it. At most one
// attempt is under way. The owner decides when to try again, and how often.
#pragma once

#include "scheduler/base/time.h"

namespace skein::scheduler {

class RetryingCall {
 public:
  void Send(TimeUs now) {
    under_way_ = true;
    sent_us_ = now;
    due_us_ = kNever;
    ++attempts_;
  }
  // False: no answer is awaited (a duplicate, or the call was dropped).
  bool TakeAnswer() {
    const bool awaited = under_way_;
    under_way_ = false;
    return awaited;
  }
  void SendAt(TimeUs at) { due_us_ = at; }  // the first time, or again
  void Drop() { *this = RetryingCall(); }   // an answer under way is not awaited any more

  bool under_way() const { return under_way_; }
  bool IsDue(TimeUs now) const { return now >= due_us_; }
  TimeUs due_us() const { return due_us_; }    // kNever: it is not to be sent
  TimeUs sent_us() const { return sent_us_; }  // the latest
  int attempts() const { return attempts_; }

 private:
  bool under_way_ = false;
  TimeUs sent_us_ = 0;
  TimeUs due_us_ = kNever;
  int attempts_ = 0;
};

}  // namespace skein::scheduler
