// AssignChain: the spanning Assigns that an instance was sent, each naming the one before it. An
// instance runs spanning pieces only up to the first hole: so all instances run them in one order.
#pragma once

#include <map>

#include "scheduler/base/ids.h"

namespace skein::scheduler {

class AssignChain {
 public:
  // An Assign `sequence` came (or will never have to be waited for), sent after `after`; 0: it was
  // the sender's first.
  void Know(PlanSequence sequence, PlanSequence after) {
    if (sequence <= end_) return;
    if (after == PlanSequence{}) {
      end_ = sequence;  // what was before belonged to a predecessor of the sender
    } else if (after >= end_) {
      links_[after] = sequence;
    }
    for (auto next = links_.begin(); next != links_.end() && next->first <= end_;) {
      if (next->first == end_) end_ = next->second;
      next = links_.erase(next);
    }
  }

  // No Assign that was sent before `sequence`, or it itself, is missing.
  bool Complete(PlanSequence sequence) const { return sequence <= end_; }

 private:
  PlanSequence end_;
  std::map<PlanSequence, PlanSequence> links_;  // by `after`, from end_ on
};

}  // namespace skein::scheduler
