// An instance's pace beside its peers, as PaceWatch judges it (pace_watch.h). Plain data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/base/time.h"

namespace skein::scheduler {

enum class Pace {
  kFair,
  kSlow,     // it gets less
  kSuspect,  // it gets nothing new
  kAside,    // and keeps nothing
};

constexpr const char* NameOf(Pace pace) {
  switch (pace) {
    case Pace::kFair:
      return "fair";
    case Pace::kSlow:
      return "slow";
    case Pace::kSuspect:
      return "suspect";
    case Pace::kAside:
      return "aside";
  }
  return "";
}

struct PaceOfInstance {
  Pace pace = Pace::kFair;
  // How many times as long as its peers' its recent steps took, beyond what their tokens and KV
  // explain. 0: there was nothing to compare with.
  double slowness = 0;
  int64_t peers = 0;    // that it was compared with
  TimeUs since_us = 0;  // when it got its pace
  TimeUs until_us = 0;  // aside: when it is tried again

  // What its freeness counts beside that of a fair one, in (0, 1].
  double Weight() const { return pace == Pace::kFair ? 1 : 1 / std::max(slowness, 1.0); }
  bool TakesNothing() const { return pace == Pace::kSuspect || pace == Pace::kAside; }
};

}  // namespace skein::scheduler
