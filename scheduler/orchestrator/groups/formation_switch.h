// FormationSwitch: binds and releases the instances of one group in flight (Flying Serving, section
// 4; the messages: scheduler/base/formation_messages.h). It knows which aligned subsets are bound,
// being bound or being released, and under which epoch. It decides nothing: the policy
// (formation_policy.h) and operators say what to bind. Sans-io: its shell carries the effects out.
//
// Bind: every member is asked to prepare; when all have, the lead alone is told to commit; the
// bind is done when all tell that they are bound. A member that refuses, leaves, or comes back
// without the epoch ends it for all: everyone works alone as before.
//
// Release: the lead is told to end the epoch; the release is done when all tell that it has ended.
// Releasing what is not bound yet aborts the bind. A bound group whose member leaves, or ends the
// epoch by itself, is ended for all.
//
// Every wait is bounded (FormationLimits). When one is over, every member that may hold the epoch
// is told to end it, hard: the lead may be the one that cannot be reached. A member that does not
// answer even this in time is a stray: it is told again and again, and not bound, until it tells
// that the epoch has ended, or leaves. So is an instance that tells an epoch that is not known
// here, such as a former orchestrator's: that one is first told to end it kindly (kSequential).
//
// What the members do, beyond formation_messages.h: an instance that is bound, but not the lead,
// ignores an EndFormation that is kSequential, and ends the epoch by a FeedEnd to its lead at one
// that is kHard. A repeated EndFormation changes nothing, except that kHard hastens kSequential. At
// the start of a stream an instance tells the epoch that it holds, if it holds one, even if it has
// refused a later one.
//
// Shared weights (formation_messages.h) go the same way, with three differences: every member is
// told to commit and to end, because there is no feed; a member that comes back is told again what
// it may have missed; and `leave_us` stands for end_us, because weights are read back. The mode
// changes in a turn of two phases (SetMode): all members are told to be ready, and when all are, to
// change. If one refuses or is late to be ready, the turn is dropped and the mode stays. If one is
// late to change, the formation is ended for all.
//
// Own sequences (OwnSequences): where they are to end before the bind (OwnEndFirst), members are
// given release_us more to prepare, as long as bound sequences are to end before a release.
//
// Without faults every switch ends: a bind within prepare_us (+ release_us) + commit_us + end_us, a
// release within release_us (kSequential) or end_us (kHard), plus end_us; a turn within ready_us +
// set_us.
//
// Invariants, by number (CheckInvariants names them):
//   1. An instance holds at most one epoch: as a member of a live one, or as a stray.
//   2. The members of a live epoch are an aligned subset of its group, whose size is a power of 2.
//   3. Epochs only grow: no live one is above the last that was given out.
//   4. Only a bound group that nobody releases, and whose mode does not change, waits for nothing;
//      all else has a deadline.
//   5. No half of a switch: a bind is committed when all members have prepared, and done when all
//      are bound; none of them has ended the epoch then. What has ended everywhere is forgotten.
//   6. Only a bound group that shares its weights has a turn, to a mode that it does not have, and
//   a
//      member of it that has not answered. None is told to change before all are ready.
//
// A call costs the live epochs and strays of the group, times its members.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation.h"

namespace skein::scheduler::orchestrator {

// Numbers the epochs of all groups of an orchestrator.
class FormationEpochs {
 public:
  // The orchestrator took a generation, whose numbers begin with `first` (FirstNumberOf).
  void BeginAt(uint64_t first) { last_ = std::max(last_, first - 1); }
  uint64_t Next() { return ++last_; }
  uint64_t last() const { return last_; }

 private:
  uint64_t last_ = 0;
};

struct FormationLimits {
  TimeUs prepare_us = 2 * kSecondUs;   // from Bind until all members have prepared
  TimeUs commit_us = 5 * kSecondUs;    // from then until all are bound: a step in flight, twice
  TimeUs release_us = 60 * kSecondUs;  // for sequences to end by themselves, bound or own ones
  TimeUs end_us = 5 * kSecondUs;       // from an order to end at once until all have ended
  TimeUs leave_us = 15 * kSecondUs;    // the same of shared weights, which are read back
  TimeUs ready_us = 2 * kSecondUs;     // from SetMode until all are ready for it
  TimeUs set_us = 5 * kSecondUs;       // from then until all have changed: a step in flight
  // kHardPreempt: the longest pause of what members run alone, from the bind on.
  TimeUs own_pause_us = 60 * kSecondUs;
};

// Effects: send the message on the instance's stream; lost if it has none now.
struct SendPrepare {
  InstanceId to;
  PrepareFormation order;
};
struct SendCommit {
  InstanceId to;
  CommitFormation order;
};
struct SendEnd {
  InstanceId to;
  EndFormation order;
};

struct SendMode {
  InstanceId to;
  OrderMode order;
};

enum class SwitchOutcome {
  kDone,
  kAborted,  // a bind: everyone works alone as before
  kForced,   // a release that took too long: bound sequences were taken back
  kFailed,   // nobody ordered it, or a member was lost meanwhile
};
std::string_view NameOf(SwitchOutcome outcome);  // "done", "aborted", …

// Effect: a switch has ended; for metrics and logs. Every accepted Bind leads to one, and every
// bound group to another one when it is no more.
struct SwitchEnded {
  uint64_t epoch = 0;
  std::vector<InstanceId> members;          // the lead first
  int32_t from = 1, to = 1;                 // FormationName
  OwnSequences own = OwnSequences::kShare;  // of the bind, also when the group is released
  SwitchOutcome outcome = SwitchOutcome::kDone;
  TimeUs took_us = 0;                       // since it was asked for, or began by a failure
  TimeUs drain_us = 0;                      // the longest that a member told (FormationTold)
  TimeUs cut_over_us = 0;                   // the same
  std::string why;                          // it was asked for
  std::string reason;                       // of an outcome other than kDone
  std::vector<InstanceId> unanswered = {};  // strays now
  std::optional<SharedMode> shared = {};    // the formation shares its weights; its latest mode
};

// Effect: a turn has ended; for metrics and logs. Every accepted SetMode leads to one.
struct ModeChanged {
  uint64_t epoch = 0;
  std::vector<InstanceId> members;
  SharedMode from = SharedMode::kWas, to = SharedMode::kWas;
  // kDone; kAborted: the mode is as before; kFailed: the formation ends.
  SwitchOutcome outcome = SwitchOutcome::kDone;
  TimeUs took_us = 0;
  std::string why;     // it was asked for
  std::string reason;  // of an outcome other than kDone
};
using SwitchEffect =
    std::variant<SendPrepare, SendCommit, SendEnd, SendMode, SwitchEnded, ModeChanged>;
using SwitchEffects = std::vector<SwitchEffect>;

class FormationSwitch {
 public:
  enum class Stage { kPreparing, kCommitting, kBound, kReleasing, kEnding };
  enum class Held { kAsked, kPrepared, kBound, kNothing };  // by a member, as far as is known

  struct Turn {  // a change of the mode
    uint64_t number = 0;
    SharedMode to = SharedMode::kWas;
    bool setting = false;        // all were ready, and are told to change
    std::vector<bool> answered;  // by rank, of this phase
    TimeUs began_us = 0;
    std::string why;
  };

  struct Live {  // an epoch that some member may hold
    uint64_t generation = 0;
    Subset subset;                    // of the group's order of that generation
    std::vector<InstanceId> members;  // by rank
    std::vector<Held> held;           // by rank
    OwnSequences own = OwnSequences::kShare;
    Stage stage = Stage::kPreparing;
    TimeUs since_us = 0;  // that it is in this stage
    TimeUs due_us = kNever;
    std::string why;                      // it is in this stage; for people
    std::optional<SharedMode> mode = {};  // of shared weights
    std::optional<Turn> turn = {};        // that is under way
    uint64_t turns = 0;                   // begun so far

    // The rank of a member that may hold the epoch; empty: none that does.
    std::optional<size_t> RankOf(InstanceId instance) const;

    // Of the switch under way, or the last one.
    Switch how = Switch::kHard;
    SwitchEnded report;
    TimeUs began_us = 0;
  };
  struct Stray {
    uint64_t epoch = 0;
    TimeUs due_us = 0;  // when it is told again
  };

  // `epochs` outlives this.
  FormationSwitch(const FormationLimits& limits, FormationEpochs* epochs);

  // The epoch under which the subset of the latest order is being bound. INVALID_ARGUMENT: it is
  // none that can be bound. FAILED_PRECONDITION: the group has no order yet, or members have left
  // or hold an epoch; the text names them and it. Nothing has changed then.
  absl::StatusOr<uint64_t> Bind(const Subset& subset, std::string why, TimeUs now,
                                SwitchEffects* effects, OwnSequences own = OwnSequences::kShare);
  // As Bind, but the members share their weights, and begin in this mode.
  absl::StatusOr<uint64_t> Share(const Subset& subset, SharedMode mode, std::string why, TimeUs now,
                                 SwitchEffects* effects);
  // The formation of the epoch is to work in this mode. FAILED_PRECONDITION: it does not stand,
  // shares no weights, works in that mode or changes its mode already.
  absl::Status SetMode(uint64_t epoch, SharedMode mode, std::string why, TimeUs now,
                       SwitchEffects* effects);
  // Releases the group that `member` is bound in, or aborts the bind. A kSequential release that is
  // under way becomes kHard. FAILED_PRECONDITION: the instance works alone, or is released already.
  absl::Status Release(InstanceId member, Switch how, std::string why, TimeUs now,
                       SwitchEffects* effects);

  // The instance told this on its stream, in this order.
  void Take(InstanceId instance, const FormationTold& told, TimeUs now, SwitchEffects* effects);
  void Take(InstanceId instance, const ModeTold& told, TimeUs now, SwitchEffects* effects);
  // It left or was lost, for good.
  void Left(InstanceId instance, TimeUs now, SwitchEffects* effects);
  // It says nothing. The others cannot go on with it, so what is bound or being bound ends for all;
  // they work alone as soon as they have told so, whether it answers or not. Shared weights stay:
  // each member goes on without it.
  void FellSilent(InstanceId instance, TimeUs now, SwitchEffects* effects);
  // A stream of the instance began, with what it has told last (none: nothing). What was sent to it
  // and told by it on the former stream may be lost.
  void Reconnected(InstanceId instance, const std::optional<FormationTold>& latest, TimeUs now,
                   SwitchEffects* effects);
  // The group has another order. What is bound or committed goes on under the older one until it is
  // released; a bind that is still being prepared is aborted. Ignored: no higher generation.
  void Regrouped(const GroupOrder& order, TimeUs now, SwitchEffects* effects);

  void Tick(TimeUs now, SwitchEffects* effects);
  TimeUs NextDeadline() const;  // kNever: nothing is awaited

  const GroupOrder& order() const { return order_; }
  const std::map<uint64_t, Live>& live() const { return live_; }         // by epoch
  const std::map<InstanceId, Stray>& strays() const { return strays_; }  // by instance
  const Live* LiveOf(InstanceId instance) const;  // null: it is a member of no live epoch
  absl::Status CheckInvariants() const;

 private:
  using LiveIt = std::map<uint64_t, Live>::iterator;

  LiveIt Find(InstanceId instance);
  absl::StatusOr<uint64_t> Begin(const Subset& subset, PrepareFormation order, std::string why,
                                 TimeUs now, SwitchEffects* effects);
  absl::Status CheckFree(const Subset& subset, std::optional<SharedMode> shared) const;
  std::string HeldBy(InstanceId instance) const;
  void Note(LiveIt it, size_t rank, const FormationTold& told, TimeUs now, SwitchEffects* effects);
  void NoteEnded(LiveIt it, size_t rank, std::string reason, TimeUs now, SwitchEffects* effects);
  void NoteStray(InstanceId instance, const FormationTold& told, TimeUs now,
                 SwitchEffects* effects);
  void Commit(LiveIt it, TimeUs now, SwitchEffects* effects);
  void Complete(LiveIt it, TimeUs now, SwitchEffects* effects);
  void Fail(LiveIt it, std::string reason, TimeUs now, SwitchEffects* effects);
  void EndEverywhere(LiveIt it, TimeUs now, SwitchEffects* effects);
  void Expire(LiveIt it, TimeUs now, SwitchEffects* effects);
  void ForgetIfEnded(LiveIt it, TimeUs now, SwitchEffects* effects);
  void Forget(LiveIt it, TimeUs now, SwitchEffects* effects);
  void SendAgain(LiveIt it, size_t rank, SwitchEffects* effects) const;
  void SendTurn(LiveIt it, size_t rank, SwitchEffects* effects) const;
  void AskAll(LiveIt it, TimeUs due_us, SwitchEffects* effects);
  void DropTurn(LiveIt it, std::string reason, TimeUs now, SwitchEffects* effects);
  void EndTurn(LiveIt it, SwitchOutcome outcome, std::string reason, TimeUs now,
               SwitchEffects* effects);
  void ExpireTurn(LiveIt it, TimeUs now, SwitchEffects* effects);
  TimeUs EndUs(const Live& live) const { return live.mode ? limits_.leave_us : limits_.end_us; }
  absl::Status CheckLive(uint64_t epoch, const Live& live) const;
  absl::Status CheckTurn(uint64_t epoch, const Live& live) const;

  const FormationLimits limits_;
  FormationEpochs* const epochs_;
  GroupOrder order_;           // its index is of no meaning
  std::set<InstanceId> left_;  // of its members
  std::map<uint64_t, Live> live_;
  std::map<InstanceId, Stray> strays_;
};

}  // namespace skein::scheduler::orchestrator
