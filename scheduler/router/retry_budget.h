// RetryBudget: how many attempts a router may begin beyond those that its requests come with, so
// that a cluster which loses every attempt is not asked many times over by all routers at once.
//
// An attempt is free if it is the request's first one after a loss, or if the one before brought
// tokens: each of these follows something that worked. All others take from the budget. It grows
//   - by kPerRequest with each request that arrives: a share of the load,
//   - by a floor that does not depend on the load, so that each request that waits has its turn:
//     max_running / kTurnS attempts a second, at least kFloorPerS,
//   - by kOnProgress when an attempt that was paid for brings a token: when the cluster works
//   again,
//     those that wait follow each other quickly,
// up to one attempt for each of max_running requests, with which it begins. So one fault of the
// whole cluster delays nobody, and one that lasts costs at most the floor and the share. What waits
// for the budget is not lost: the floor gives each its turn within kTurnS.
//
// Plain data with the time given; in millionths of an attempt, so that it is exact.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class RetryBudget {
 public:
  static constexpr int64_t kAttempt = 1'000'000;
  static constexpr int64_t kPerRequest = kAttempt / 5;
  static constexpr int64_t kOnProgress = 2 * kAttempt;
  static constexpr int64_t kFloorPerS = 10;
  static constexpr int64_t kTurnS = 10;

  // REQUIRES 0 < max_running < 2^32.
  explicit constexpr RetryBudget(int64_t max_running)
      : per_s_(std::max(kFloorPerS, max_running / kTurnS)),
        most_(kAttempt * std::max(kFloorPerS, max_running)),
        held_(most_) {}

  constexpr void Requested() { Add(kPerRequest); }
  constexpr void Progressed() { Add(kOnProgress); }

  // One more attempt is to begin. False: not now.
  constexpr bool Take(TimeUs now) {
    // A millionth of an attempt in a microsecond for each attempt in a second.
    const TimeUs full_us = (most_ - held_) / per_s_ + 1;
    Add(per_s_ * std::clamp<TimeUs>(now - at_us_, 0, full_us));
    at_us_ = std::max(at_us_, now);
    if (held_ < kAttempt) return false;
    held_ -= kAttempt;
    return true;
  }
  // When Take will allow one, unless it allows one sooner.
  constexpr TimeUs NextUs() const {
    const int64_t lacks = std::max<int64_t>(kAttempt - held_, 0);
    return at_us_ + (lacks + per_s_ - 1) / per_s_;
  }

 private:
  constexpr void Add(int64_t more) { held_ = std::min(held_ + more, most_); }

  int64_t per_s_;
  int64_t most_;
  int64_t held_;
  TimeUs at_us_ = 0;
};

}  // namespace skein::scheduler
