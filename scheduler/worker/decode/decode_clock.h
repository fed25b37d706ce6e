// DecodeClock: the time of the event that a DecodeCore handles. Its parts read it; only the core
// sets it.
#pragma once

#include "scheduler/base/listening_clock.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

struct DecodeClock {
  TimeUs now = 0;
  ListeningClock listening;  // to writers and routers

  // The start of a silence that begins now.
  TimeUs Listening() const { return listening.At(now); }
};

}  // namespace skein::scheduler
