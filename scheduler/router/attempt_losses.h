// AttemptLosses: whether and when a request whose attempt was lost is tried again. Plain data, part
// of a ClientRequest.
//
// The first attempt after one that was placed begins at once, later ones wait twice as long each,
// from kFirstWaitUs to kLastWaitUs: the orchestrator may not know yet that an instance is gone, or
// none may be there for a moment. The request is given up when
//   - no attempt was placed for RouterConfig::resume_wait_us, or
//   - kShortMax placed attempts in a row were lost within kShortUs of their placement, or
//   kPlacedMax
//     in all: then the request itself may end the processes that run it, and each further attempt
//     would cost one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class AttemptLosses {
 public:
  static constexpr TimeUs kFirstWaitUs = 50 * kMillisecondUs;
  static constexpr TimeUs kLastWaitUs = kSecondUs;
  static constexpr TimeUs kShortUs = 2 * kSecondUs;
  static constexpr int kShortMax = 3;
  static constexpr int kPlacedMax = 64;

  // An attempt is lost that was placed at this time; kNever: it was not. True: the next one begins
  // at begins_us().
  bool Lose(TimeUs placed_us, TimeUs wait_max_us, TimeUs now) {
    if (placed_us != kNever) {
      short_ = now - placed_us < kShortUs ? short_ + 1 : 0;
      ++placed_;
      since_us_ = kNever;
    }
    if (since_us_ == kNever) {
      since_us_ = now;
      wait_us_ = 0;
    } else {
      wait_us_ = std::clamp(2 * wait_us_, kFirstWaitUs, kLastWaitUs);
    }
    begins_us_ = now + wait_us_;
    ++count_;
    return short_ < kShortMax && placed_ < kPlacedMax && begins_us_ - since_us_ < wait_max_us;
  }

  // An attempt that was placed is given up by choice, because its instance leaves: the next one
  // begins at once. No loss of the request's; the number of leaving instances limits how often.
  void Move(TimeUs now) {
    ++count_;
    since_us_ = begins_us_ = now;
    wait_us_ = 0;
  }

  TimeUs begins_us() const { return begins_us_; }
  uint64_t count() const { return count_; }  // attempts that were lost or moved

 private:
  uint64_t count_ = 0;
  int placed_ = 0;            // that were placed and lost
  int short_ = 0;             // of these, the last ones, in a row, that were lost soon
  TimeUs since_us_ = kNever;  // of the first loss or move since an attempt was placed
  TimeUs wait_us_ = 0;
  TimeUs begins_us_ = 0;
};

}  // namespace skein::scheduler
