// PeerBreaker: whether to try a peer that failed lately. Plain data with the time given.
//
// closed     It is tried. A failure is followed by a pause, which doubles with each one in a row.
// open       After `failures_to_open` failures in a row: for the pause that follows, nothing is
// tried
//            there. What has another place goes there at once instead of waiting for this peer.
// half-open  After that, one try is made. If it succeeds the breaker is closed, and if it fails it
// is
//            open again. Meanwhile nothing else is tried.
#pragma once

#include <utility>

#include "scheduler/base/backoff.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

class PeerBreaker {
 public:
  enum class State { kClosed, kOpen, kHalfOpen };

  // REQUIRES 0 < failures_to_open; of the others as Backoff has it.
  constexpr PeerBreaker(int failures_to_open, TimeUs first_us, TimeUs longest_us)
      : failures_to_open_(failures_to_open), pauses_(first_us, longest_us) {}

  // The peer answered.
  constexpr void Succeeded() {
    pauses_.Succeeded();
    trying_ = false;
    next_us_ = 0;
  }
  constexpr void Failed(TimeUs now) {
    next_us_ = now + pauses_.Failed();
    trying_ = false;
  }

  constexpr State StateAt(TimeUs now) const {
    if (pauses_.failures() < failures_to_open_) return State::kClosed;
    return now < next_us_ ? State::kOpen : State::kHalfOpen;
  }
  // Whether something may be tried now; closed: not before next_us(). While it is half-open the
  // first that asks is the one try, which Succeeded or Failed has to follow.
  constexpr bool Allows(TimeUs now) {
    switch (StateAt(now)) {
      case State::kClosed:
        return true;
      case State::kOpen:
        return false;
      case State::kHalfOpen:
        return !std::exchange(trying_, true);
    }
    return true;
  }
  // The end of the pause after the last failure; 0: there is none.
  constexpr TimeUs next_us() const { return next_us_; }

 private:
  int failures_to_open_;
  Backoff pauses_;
  TimeUs next_us_ = 0;
  bool trying_ = false;  // half-open, and the one try is made
};

}  // namespace skein::scheduler
