// AttemptLosses: whether and when a request whose attempt was lost is tried again. Plain data, part
// of a ClientRequest.
//
// The first attempt after one that gave tokens begins at once, later ones wait twice as long each,
// from kFirstWaitUs to kLastWaitUs: the orchestrator may not know yet that an instance is gone, or
// none may be there for a moment. The request is given up
//   - when nothing has come of it for RouterConfig::resume_wait_us, or
//   - when kShortMax attempts in a row were lost after fewer than kShortTokens tokens each: then
//   the
//     request itself may end the engines that run it, and each further attempt would cost one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class AttemptLosses {
 public:
  static constexpr TimeUs kFirstWaitUs = 50 * 1000;
  static constexpr TimeUs kLastWaitUs = kSecondUs;
  static constexpr int64_t kShortTokens = 16;
  static constexpr int kShortMax = 3;

  // An attempt was lost that delivered so many tokens. True: the next one begins at begins_us().
  bool Lose(int64_t tokens, TimeUs wait_max_us, TimeUs now) {
    if (tokens > 0) {
      short_ = tokens < kShortTokens ? short_ + 1 : 0;
      since_us_ = kNone;
    }
    if (since_us_ == kNone) {
      since_us_ = now;
      wait_us_ = 0;
    } else {
      wait_us_ = std::clamp(2 * wait_us_, kFirstWaitUs, kLastWaitUs);
    }
    begins_us_ = now + wait_us_;
    ++count_;
    return short_ < kShortMax && begins_us_ - since_us_ < wait_max_us;
  }

  TimeUs begins_us() const { return begins_us_; }
  uint64_t count() const { return count_; }  // attempts that were lost

 private:
  static constexpr TimeUs kNone = -1;

  uint64_t count_ = 0;
  int short_ = 0;            // in a row
  TimeUs since_us_ = kNone;  // of the first loss since a token came
  TimeUs wait_us_ = 0;
  TimeUs begins_us_ = 0;
};

}  // namespace skein::scheduler
