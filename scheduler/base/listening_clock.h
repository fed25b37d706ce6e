// ListeningClock: for how long a core has handled the messages of others. Leases of others are
// measured by it.
//
// A core ends what another process has not renewed for a lease. But while the core's own process is
// paused (not scheduled, suspended, or busy with a long queue of events), messages of others queue
// up unread. That pause is ours, so it must not expire the leases of others. So this clock advances
// only on the core's ticks, which its shell sends when all earlier messages are handled, and on
// each tick by a small part of a lease at most, however late the tick is.
//
// A lease thus never ends early; it lasts longer by the time for which the process was paused. A
// process that renews every third of a lease survives any single pause, and any number of pauses if
// one of its messages is handled between them. While ticks are on time, this clock advances as
// `now` does.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class ListeningClock {
 public:
  explicit ListeningClock(TimeUs lease_us)
      : period_us_(std::max<TimeUs>(lease_us / 16, 1)), step_us_(2 * period_us_) {}

  // At a tick: everything that came before `now` was handled. Leases are compared with elapsed().
  void Listened(TimeUs now) {
    elapsed_us_ = At(now);
    last_us_ = std::max(last_us_, now);
  }
  TimeUs elapsed() const { return elapsed_us_; }

  // What this clock shows at `now`: the start of a silence that begins now.
  TimeUs At(TimeUs now) const {
    return elapsed_us_ + std::clamp<TimeUs>(now - last_us_, 0, step_us_);
  }

  // When the next tick is due (in the time of `now`) while something ends at `end` of this clock.
  TimeUs NextTick(TimeUs end) const {
    if (end == kNever) return kNever;
    return last_us_ + std::clamp<TimeUs>(end - elapsed_us_, 0, period_us_);
  }

 private:
  TimeUs period_us_;  // a tick is due so often
  TimeUs step_us_;    // and counts for so much at most
  TimeUs last_us_ = 0;
  TimeUs elapsed_us_ = 0;
};

}  // namespace skein::scheduler
