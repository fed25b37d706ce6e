// HeldChanges: the requests that a worker holds, and what of it the orchestrator was not told yet.
// So a report costs nothing for requests that do nothing. Part of Membership.
//
// Invariants (CheckInvariants): what is held is what the core says; each change is of a request
// that is held.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/held_digest.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

class HeldChanges {
 public:
  // It is held from now on, or was and has moved on. `chunk_since_us`: when the chunk began that
  // runs now, kNever: none does.
  void Holds(const HeldRequest& held, TimeUs chunk_since_us);
  bool Drop(RequestId id, Epoch epoch);  // it is held no more; false: it was not
  void Gone(RequestId id, Epoch epoch);  // the same, and no end tells so

  // Since the last call of these, or of AllTold.
  std::vector<HeldRequest> TakeChanges(TimeUs now);
  std::vector<HeldRequest> TakeGone() { return std::exchange(gone_, {}); }
  // A full report lists all that is held: changes before it need no report.
  void ListTold() { changes_.clear(); }
  // A registration does, and withdrawals before it need no report, either.
  void AllTold();
  uint64_t digest() const { return digest_.value(); }  // of all that is held

  absl::Status CheckInvariants(const std::vector<HeldRequest>& held) const;

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Change {
    HeldRequest held;
    TimeUs chunk_since_us = kNever;
  };

  std::set<Key> held_;
  HeldDigest digest_;              // of held_
  std::map<Key, Change> changes_;  // each is held
  std::vector<HeldRequest> gone_;
};

}  // namespace skein::scheduler
