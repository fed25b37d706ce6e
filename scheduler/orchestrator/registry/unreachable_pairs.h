// UnreachablePairs: pairs of instances that failed to reach each other: a prefill and a decode
// instance (handoffs), or two prefill instances (ring steps; the smaller id first). Each answers
// the orchestrator, so neither is lost; but what the two do together fails again and again while
// the network between them is cut. Such a pair is barred: not planned again for a time, which
// doubles with each failure after it, unless the request has no other way. Part of
// OrchestratorCore; no clock of its own.
//
// What counts as a failure: the lead could not open the transfer (UNAVAILABLE, DEADLINE_EXCEEDED),
// a handoff that was open was not completed, or a ring step failed, while the instances were there.
// Of a ring, each pair counts: nobody knows which one it was. That may have had another cause; it
// then costs a detour for a few seconds. A handoff that was committed, or a prompt that was
// computed together, forgets the pair; so does an instance that leaves. A process that comes back
// is another instance.
//
// Bounded: kPairsMax pairs; beyond it the one that is due first is forgotten.
//
// Invariants (CheckInvariants): the barred pairs are those listed by their prefill instance; each
// pair has a timer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/base/backoff.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler {

class UnreachablePairs {
 public:
  static constexpr TimeUs kFirstUs = 5 * kSecondUs;
  static constexpr TimeUs kLongestUs = 60 * kSecondUs;
  static constexpr TimeUs kKeptUs = 600 * kSecondUs;  // after it was barred last
  static constexpr size_t kPairsMax = 1024;

  // Failures of a pair that is barred are of work that was under way: they count once.
  void Failed(InstanceId first, InstanceId second, TimeUs now);
  void Worked(InstanceId first, InstanceId second);
  void Forget(InstanceId instance);  // costs a walk over the pairs
  bool RunTimers(TimeUs now);        // true: some pair is barred no longer
  TimeUs NextDue() const { return timers_.Next(); }

  // Those that are barred as the second of a pair with this one. Holds until the next change.
  const std::set<InstanceId>& BarredFor(InstanceId first) const;
  bool any() const { return !barred_.empty(); }
  bool remembers_any() const { return !pairs_.empty(); }
  int64_t barred() const { return barred_count_; }  // pairs
  uint64_t failures() const { return failures_; }   // that barred a pair

  absl::Status CheckInvariants() const;

 private:
  using Pair = std::pair<InstanceId, InstanceId>;
  struct Entry {
    Backoff backoff{kFirstUs, kLongestUs};
    bool barred = false;
  };
  void Bar(const Pair& pair, Entry* entry, bool barred);
  void Erase(std::map<Pair, Entry>::iterator it);

  std::map<Pair, Entry> pairs_;
  std::map<InstanceId, std::set<InstanceId>> barred_;  // by the first of the pair; none is empty
  TimerQueue<Pair> timers_;  // the end of the bar, then that of the memory of it
  int64_t barred_count_ = 0;
  uint64_t failures_ = 0;
};

}  // namespace skein::scheduler
