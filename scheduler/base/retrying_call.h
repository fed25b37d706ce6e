// RetryingCall: a call to another process, repeated until an answer settles it. At most one attempt
// is in flight. The owner decides when and how often to retry.
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
  // False: no answer is expected (a duplicate, or the call was dropped).
  bool TakeAnswer() {
    const bool awaited = under_way_;
    under_way_ = false;
    return awaited;
  }
  void SendAt(TimeUs at) { due_us_ = at; }  // schedules the first attempt or a retry
  void Drop() { *this = RetryingCall(); }   // an answer in flight will be ignored

  bool under_way() const { return under_way_; }
  bool IsDue(TimeUs now) const { return now >= due_us_; }
  TimeUs due_us() const { return due_us_; }    // kNever: nothing to send
  TimeUs sent_us() const { return sent_us_; }  // of the latest attempt
  int attempts() const { return attempts_; }

 private:
  bool under_way_ = false;
  TimeUs sent_us_ = 0;
  TimeUs due_us_ = kNever;
  int attempts_ = 0;
};

}  // namespace skein::scheduler
