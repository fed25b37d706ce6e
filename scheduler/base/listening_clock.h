// ListeningClock: how long a core has been handling messages from others. The core measures the
// leases of others with it.
//
// A core ends whatever another process has not renewed for a lease. While the core's own process is
// paused (not scheduled, suspended, or busy with a long event queue), messages queue up unread.
// That pause is ours, so it must not expire the leases of others. So this clock advances only on
// the core's ticks, which the shell sends when all earlier messages are handled. Each tick advances
// it by at most a small part of a lease, however late the tick is.
//
// So a lease never ends early; it is extended by the time for which the process was paused. A
// process that renews every third of a lease survives any single pause, and any number of pauses if
// one of its messages is handled between them. While ticks are on time, this clock advances like
// `now`.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class ListeningClock {
 public:
  explicit ListeningClock(TimeUs lease_us) { SetLease(lease_us); }

  // From now on it measures leases of this length, or longer ones.
  void SetLease(TimeUs lease_us) {
    period_us_ = std::max<TimeUs>(lease_us / 16, 1);
    step_us_ = 2 * period_us_;
  }

  // At a tick: all earlier messages were handled. Compare leases with elapsed().
  void Listened(TimeUs now) {
    elapsed_us_ = At(now);
    last_us_ = std::max(last_us_, now);
  }
  TimeUs elapsed() const { return elapsed_us_; }

  // This clock's value at `now`: the start of a silence that begins now.
  TimeUs At(TimeUs now) const {
    return elapsed_us_ + std::clamp<TimeUs>(now - last_us_, 0, step_us_);
  }

  // When the next tick is due, in the time of `now`, if something ends at `end` of this clock.
  TimeUs NextTick(TimeUs end) const {
    if (end == kNever) return kNever;
    return last_us_ + std::clamp<TimeUs>(end - elapsed_us_, 0, period_us_);
  }

 private:
  TimeUs period_us_ = 1;  // time between ticks
  TimeUs step_us_ = 2;    // a tick counts for at most this long
  TimeUs last_us_ = 0;
  TimeUs elapsed_us_ = 0;
};

}  // namespace skein::scheduler
