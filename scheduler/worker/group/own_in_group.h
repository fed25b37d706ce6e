// OwnInGroup: what this rank runs by itself, and how that fares while it is bound (OwnSequences):
// in turns with the group's steps, paused, or joining the group once. What ends before the bind is
// HeldFormation's concern. Part of BoundGroup, and used only on its thread. Each call costs O(1).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/group/own_pause.h"

namespace skein::scheduler {

// What this rank runs by itself, now.
struct OwnWork {
  int64_t tokens = 0;  // that a step of it would run
  bool waits = false;  // sequences of it wait for blocks
  bool any = false;    // there are sequences, also such whose KV is coming, or a step of them runs
};

class OwnInGroup {
 public:
  // `pause_max_us`: the longest pause of own sequences, from the bind on, where the order to
  // prepare says nothing else.
  explicit OwnInGroup(TimeUs pause_max_us) : pause_max_us_(pause_max_us) {}

  // False: it would run as many tokens as before.
  bool Set(const OwnWork& work) { return std::exchange(work_, work).tokens != work.tokens; }
  const OwnWork& work() const { return work_; }

  // This rank is bound from now on.
  void Bind(const PrepareFormation& order, TimeUs now) {
    own_ = order.own;
    moves_ = OwnJoinGroup(own_);
    pause_us_ = order.own_pause_us.value_or(pause_max_us_);
    bind_us_ = now;
    told_tokens_ = 0;
  }
  // Own sequences pause, unless the group is being released.
  bool Pauses(TimeUs now) const { return OwnPauses(own_, now - bind_us_, pause_us_); }
  // What this rank runs alone is to join the group, once an epoch.
  bool moves() const { return moves_; }
  void Moved() { moves_ = false; }

  // ---- a member: what its lead knows ----

  // The end of a step tells it.
  void ToldByStep() { told_tokens_ = work_.tokens; }
  // What is to be told between steps: the lead thinks that there is nothing, and now there is.
  std::optional<int64_t> TakeUntold() {
    if (told_tokens_ > 0 || work_.tokens == 0) return std::nullopt;
    return told_tokens_ = work_.tokens;
  }

 private:
  const TimeUs pause_max_us_;
  OwnWork work_;
  bool moves_ = false;
  OwnSequences own_ = OwnSequences::kShare;
  TimeUs pause_us_ = 0, bind_us_ = 0;
  int64_t told_tokens_ = 0;
};

}  // namespace skein::scheduler
