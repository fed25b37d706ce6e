// How instances of a group bind and release (Flying Serving, section 4; docs of the protocol:
// scheduler/README.md, "Formations in flight").
//
// Two phases. The orchestrator has each instance of an aligned subset prepare under one epoch; when
// all are prepared, it tells the lead alone to commit. The lead's first step plan (FeedPlan of that
// epoch) binds the others: there is no commit that reaches some of them only. One that does not
// want the epoch any more answers that plan with FeedEnd, and all work alone as before. What was
// prepared costs nothing and stops nobody: each instance runs its own steps until it is bound.
//
// An epoch ends once, for all members: by order (EndFormation to the lead, which first lets the
// bound sequences end, or takes them back), by a member's death, by a step that failed, or by a
// deadline. Each member tells FormationTold::Phase::kEnded then.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

// How the sequences that an instance runs alone fare when it is bound (Flying Serving, section 5).
enum class OwnSequences {
  kShare,       // they go on, in turns with the group's, by a share of the tokens that wait
  kSequential,  // they end first; the instance takes no new ones, and is prepared when they have
  // As kSequential, but the lead goes on taking requests and computes them alone meanwhile, and so
  // does each other member once its own have ended. What they run when the group is bound goes on
  // in the group, which computes it anew; each stream stays at the member where it began.
  kSoftPreempt,
  // They pause with their KV in place, and run where the group has nothing to run, or when it is
  // released.
  kHardPreempt,
};

inline std::string_view ToString(OwnSequences own) {
  switch (own) {
    case OwnSequences::kShare:
      return "share";
    case OwnSequences::kSequential:
      return "sequential";
    case OwnSequences::kSoftPreempt:
      return "soft";
    case OwnSequences::kHardPreempt:
      return "hard";
  }
  return "share";
}

// Which steps of a bound group run in full TP, and how the others run (Shift Parallelism, algorithm
// 2). Measured for a model and device (skeinctl profile).
struct ShiftRule {
  // Steps of more tokens than this run in the base: SP size / tp x TP tp.
  int64_t tokens = 0;
  int32_t tp = 1;  // 1: the base is pure SP

  // Whether a group of `size` instances, a power of two, can run such a base.
  bool Fits(int32_t size) const { return tp >= 1 && tp < size && size % tp == 0; }
  auto operator<=>(const ShiftRule&) const = default;
};

// ---- from the orchestrator to a decode-worker; not answered, but told ----

// Be ready to work with these instances, whose pools have as many blocks as this one's: the
// communicators of `generation` (GroupOrder) are made, and nothing of an older epoch is left.
// Forgotten after `keep_us` without a plan of the epoch.
struct PrepareFormation {
  uint64_t epoch = 0;       // of formations; only grows
  uint64_t generation = 0;  // of the group's communicators
  // An aligned subset of the members of that GroupOrder, whose size is a power of two: members
  // [first, first + size). The lead is member `first`, rank 0.
  int32_t first = 0;
  int32_t size = 0;
  TimeUs keep_us = 0;
  std::optional<ShiftRule> shift = {};  // fits `size`; empty: as the decode-worker is configured
  OwnSequences own = OwnSequences::kShare;
  // kHardPreempt: the longest pause of own sequences, from the bind on. Empty: as the decode-worker
  // is configured.
  std::optional<TimeUs> own_pause_us = {};
};

// To the lead: all are prepared. An epoch that it has not prepared is told as kEnded.
struct CommitFormation {
  uint64_t epoch = 0;
};

// How sequences fare when a formation ends.
enum class Switch {
  kSequential,  // those of the bound group end first; it takes no new ones
  kHard,        // those of the bound group are taken back by the lead and computed anew there
};

// To the lead of a bound group: release it. To one that is only prepared: forget it. Another member
// of a bound group ignores kSequential, and ends the epoch for all by kHard.
struct EndFormation {
  uint64_t epoch = 0;
  Switch how = Switch::kSequential;
  absl::Status why;
};

// ---- from a decode-worker to the orchestrator; not answered ----

// Repeated at the start of each stream, for the epoch that is held, else for the latest.
struct FormationTold {
  enum class Phase {
    kPrepared,
    kBound,  // it has run, or is about to run, the epoch's first step
    kEnded,  // or was never prepared; `why` says the reason
  };
  uint64_t epoch = 0;
  Phase phase = Phase::kEnded;
  absl::Status why;
  // kBound: from the commit (the lead) or the first plan (the others) until this instance could run
  // a step of the group, and the part of it that it waited for its own step in flight. kEnded of a
  // group that was bound: from the order to release until the last bound sequence had left.
  TimeUs cut_over_us = 0;
  TimeUs drain_us = 0;
};

}  // namespace skein::scheduler
