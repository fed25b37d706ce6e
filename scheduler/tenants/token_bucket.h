// A limit of so many tokens (or requests) a minute, as a bucket that holds a minute's worth, is
// full at first and fills steadily. What was taken and came back, because less was used than had
// been estimated, is as if it had never been taken.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler::tenants {

// Pure; the caller says when it is. One thread at a time.
class TokenBucket {
 public:
  static constexpr int64_t kPerMinuteMax = 10'000'000'000;

  // 0: there is no limit. REQUIRES: at most kPerMinuteMax.
  void SetPerMinute(int64_t per_minute, TimeUs now) {
    Refill(now);
    per_minute_ = per_minute;
  }
  int64_t per_minute() const { return per_minute_; }

  // What could be taken now; INT64_MAX without a limit. Negative, when the limit was lowered.
  int64_t Left(TimeUs now) {
    Refill(now);
    return per_minute_ == 0 ? INT64_MAX : per_minute_ - (missing_ + kUnit - 1) / kUnit;
  }
  // How long until that many can be taken; 0: at once. kNever: more than a full bucket holds.
  TimeUs WaitFor(int64_t count, TimeUs now) {
    Refill(now);
    if (per_minute_ == 0) return 0;
    if (count > per_minute_) return kNever;
    const int64_t too_much = missing_ - (per_minute_ - count) * kUnit;
    return too_much <= 0 ? 0 : (too_much + per_minute_ - 1) / per_minute_;
  }
  // How long until the bucket is full.
  TimeUs FullIn(TimeUs now) {
    Refill(now);
    return per_minute_ == 0 ? 0 : (missing_ + per_minute_ - 1) / per_minute_;
  }
  // REQUIRES: WaitFor(count) is 0.
  void Take(int64_t count, TimeUs now) {
    Refill(now);
    if (per_minute_ > 0) missing_ += count * kUnit;
  }
  // Of what was taken.
  void GiveBack(int64_t count, TimeUs now) {
    Refill(now);
    missing_ = count >= missing_ / kUnit + 1 ? 0 : std::max<int64_t>(0, missing_ - count * kUnit);
  }

 private:
  static constexpr int64_t kUnit = 60'000'000;  // a minute's limit of n fills n units a microsecond

  void Refill(TimeUs now) {
    const TimeUs passed = std::max<TimeUs>(0, now - at_);
    at_ = std::max(at_, now);
    if (per_minute_ == 0 || passed >= missing_ / per_minute_ + 1) {
      missing_ = 0;
    } else {
      missing_ = std::max<int64_t>(0, missing_ - passed * per_minute_);
    }
  }

  int64_t per_minute_ = 0;
  int64_t missing_ = 0;  // until the bucket is full, in units
  TimeUs at_ = 0;        // when it was looked at last
};

}  // namespace skein::scheduler::tenants
