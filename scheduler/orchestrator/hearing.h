// Hearing: whether an orchestrator hears anybody. Part of OrchestratorCore.
//
// Workers and routers report every sixth of a lease. So when none of those whose streams stand has
// said a word for a third of one, while this process listened (ListeningClock), the fault is most
// likely its own: what is sent to it does not arrive. An error costs little: another one leads,
// running answers go on, and how often a leader steps aside is bounded (election_core.h). It takes
// two of them: of one alone nobody can say whose fault it is. Processes that end close their
// streams, so an orchestrator whose workers and routers have all gone is not deaf, and neither is
// one that nobody has come to.
#pragma once

#include <algorithm>
#include <cstddef>

#include "scheduler/base/time.h"

namespace skein::scheduler::orchestrator {

class Hearing {
 public:
  static constexpr size_t kPeersMin = 2;

  explicit Hearing(TimeUs lease_us) : patience_us_(std::max<TimeUs>(lease_us / 3, 1)) {}

  // A word of a worker or router, or the end of its stream. All times are the listening clock's.
  void Heard(TimeUs listened_us) {
    deaf_at_us_ = std::max(deaf_at_us_, listened_us + patience_us_);
  }
  // At a tick, with the number of streams that stand. True once for each such time of silence.
  bool TakeDeaf(size_t peers, TimeUs listened_us) {
    if (listened_us < NextDue(peers)) return false;
    deaf_at_us_ = listened_us + patience_us_;
    return true;
  }
  TimeUs NextDue(size_t peers) const { return peers < kPeersMin ? kNever : deaf_at_us_; }

 private:
  const TimeUs patience_us_;
  TimeUs deaf_at_us_ = 0;
};

}  // namespace skein::scheduler::orchestrator
