// ListeningClock: how long a core has listened to others.
//
// A core ends what another process has not spoken of for a lease. But while its own process stands
// still (not scheduled, suspended, at work on a long queue of events) words come and are not heard:
// that is its own silence, not theirs. So silence is measured by this clock. It is set forward only
// on the core's ticks, which its shell gives it when everything that had come was handled, and on
// each tick by a small part of the lease at most, however late the tick came.
//
// A lease is thus never shorter than its time, and longer by what the process stood still. Whoever
// speaks every third of a lease survives any one standstill, and any number between which one word
// of it is heard. While ticks come in time this clock goes as `now` does.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

class ListeningClock {
 public:
  explicit ListeningClock(TimeUs lease_us)
      : period_us_(std::max<TimeUs>(lease_us / 16, 1)), step_us_(2 * period_us_) {}

  // At a tick: everything that came before `now` was handled. Ends are compared with elapsed().
  void Listened(TimeUs now) {
    elapsed_us_ = At(now);
    last_us_ = std::max(last_us_, now);
  }
  TimeUs elapsed() const { return elapsed_us_; }

  // What this clock shows at `now`: from when on a silence is measured that begins now.
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
