// How instances of a group bind and release (Flying Serving, section 4; docs of the protocol:
// scheduler/README.md, "Formations in flight").
//
// Two phases. The orchestrator has each instance of an aligned subset prepare under one epoch; when
// all are prepared, it tells the lead alone to commit. The lead's first step plan (FeedPlan of that
// epoch) binds the others: there is no commit that reaches some of them only. One that does not
// want the epoch any more answers that plan with FeedEnd, and all work alone as before. What was
// prepared costs nothing and stops nobody: each instance runs its own steps until it is bound.
//
// A formation may instead be of instances that share their weights (SiDP): each goes on with its
// own batch, and reads the feed-forward weights of most layers from the member that owns them, or
// has that one compute with them (SharedMode). It has no feed and no steps of its own. So all
// members are told to commit, each enters at the end of the step that it runs, and each is told to
// end. Nothing waits for the others to enter or to leave: from kPrepared on a member serves the
// layers that it owns, and after kEnded it goes on until it prepares a newer epoch. The mode
// changes in two phases, too (OrderMode).
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
#include "scheduler/base/shared_mode.h"
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
  // Set: the members share their weights, and begin in this mode. `shift`, `own` and `own_pause_us`
  // are of no meaning then. An instance whose engine cannot share refuses, with a reason that names
  // the engine.
  std::optional<SharedMode> shared = {};
};

// To the lead: all are prepared. Of shared weights: to each member, which tells kBound when it has
// entered. An epoch that it has not prepared is told as kEnded.
struct CommitFormation {
  uint64_t epoch = 0;
};

// How sequences fare when a formation ends.
enum class Switch {
  kSequential,  // those of the bound group end first; it takes no new ones
  kHard,        // those of the bound group are taken back by the lead and computed anew there
};

// To the lead of a bound group: release it. To one that is only prepared: forget it. Another member
// of a bound group ignores kSequential, and ends the epoch for all by kHard. Of shared weights: to
// each member, which has its weights back when it tells kEnded. With kSequential it first lets the
// sequences end that only fit because of the blocks that sharing has freed; with kHard it preempts
// them.
struct EndFormation {
  uint64_t epoch = 0;
  Switch how = Switch::kSequential;
  absl::Status why;
};

// To each member of a formation that shares its weights: the mode changes. First all are told to be
// ready (kReady): from then on until the epoch ends a member serves the mode to the others, and
// goes on in its own. When all are, all are told to change (kSet), each at the end of the step that
// it runs; one without work does so at once. So no member works in a mode that another does not
// serve, whatever is lost or late. Each answers both by ModeTold; a repeated order is answered
// again. One that is told kDrop forgets that it is ready.
struct OrderMode {
  enum class Act { kReady, kSet, kDrop };
  uint64_t epoch = 0;
  uint64_t turn =
      0;  // counts the changes of the epoch; a later one takes the place of a former one
  SharedMode mode = SharedMode::kWas;
  Act act = Act::kReady;
};

// ---- from a decode-worker to the orchestrator; not answered ----

// How far the instance is with an OrderMode.
struct ModeTold {
  enum class Phase {
    kReady,
    kSet,
    kRefused,  // of kReady: it goes on in the mode that it has; `why` says the reason
  };
  uint64_t epoch = 0;
  uint64_t turn = 0;
  Phase phase = Phase::kRefused;
  absl::Status why = {};
};

// Repeated at the start of each stream, for the epoch that is held, else for the latest.
struct FormationTold {
  enum class Phase {
    kPrepared,
    kBound,  // it has run, or is about to run, the epoch's first step; or shares its weights now
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
