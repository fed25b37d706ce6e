// Formations: how each group's instances are bound and released. It asks the policy
// (formation_policy.h) what should be bound, lets operators pin that, and has one FormationSwitch a
// group carry it out. Part of OrchestratorCore, which tells it what instances report and tell.
//
// What is to be bound. The pins of operators come first; the rest is the policy's, when the
// orchestrator decides by itself (FormationConfig::automatic), else nobody's. The policy is asked
// when a member of the group has reported, at most every kChooseUs. What is bound and should not
// be is released; what should be bound and is free is bound. So one rule carries out all: the
// policy's choices, an operator's orders, and what is left to do after a failure.
//
// Only instances that can be bound are: each serves, has made the communicators of the latest
// order, and has as many KV blocks as the others. A bind that has failed, or a bound group that
// has, is bound again after a pause, which doubles until a group was released in order. An order of
// an operator does not wait for it, and is not tried again: its pin is gone with it. A bind for a
// priority that is tried again does not wait for own sequences to end: they pause.
//
// Who gets requests (Mark). A member of a bound group that does not lead it gets nothing new: its
// steps are the group's. What its lead gets runs in the group, from KV that comes to all ranks
// (scheduler/worker/README.md), unless the group is being bound. While it is being bound, members
// whose own sequences are to end first (OwnEndFirst) get nothing new either, until these have ended
// if what they run then joins the group (OwnJoinGroup). While it is released,
// each member gets requests that it runs alone, in turns with the group's: it is released because
// there are many, and the lead alone would get all of them, or because its lead serves no more. The
// lead of a group that is bound for priority is marked: decode_pool.h says who gets it.
//
// Instances that share their weights (formations_shared.cc) each go on with their own requests, so
// all of them get new ones. While they stand the mode follows their batches (SharedModePolicy), or
// is what an operator has pinned.
//
// Each switch is noted, from its begin on and with its cause, for the explanations of the requests
// at its members (explain/switch_notes.h).
//
// A call costs what the group costs: its members, times its live formations.
//
// Invariants (CheckInvariants names them): those of each group's switch and pins; what is pinned,
// bound or called for is of instances of that group; each decode instance is marked as it is
// bound.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/switch_notes.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/orchestrator/groups/formation_order.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/orchestrator/groups/group_control.h"
#include "scheduler/orchestrator/groups/group_needs.h"
#include "scheduler/orchestrator/groups/pins.h"
#include "scheduler/orchestrator/groups/shared_mode_policy.h"
#include "scheduler/orchestrator/groups/switch_causes.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class Formations {
 public:
  using Key = GroupControl::Key;

  // Not owned; they outlive it.
  struct Parts {
    const RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    const GroupControl* groups = nullptr;
    GroupNeeds* needs = nullptr;
    DecodeFlow* decode = nullptr;
    SwitchNotes* switches = nullptr;
    PlanSender* sender = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };

  static constexpr TimeUs kChooseUs = kSecondUs / 4;
  static constexpr TimeUs kRetryMinUs = kSecondUs, kRetryMaxUs = 600 * kSecondUs;
  static constexpr TimeUs kModeRetryUs = 10 * kSecondUs;  // after a change of a mode that failed

  // REQUIRES: CheckFormationPolicy(config.policy).ok().
  Formations(const FormationConfig& config, const Parts& parts) : config_(config), parts_(parts) {}

  // The orchestrator took a generation, whose numbers begin with `first`.
  void NumberFrom(uint64_t first) { epochs_.BeginAt(first); }

  // Its group has another order (GroupControl::TakeDue). REQUIRES: the instance is in a group.
  void Regrouped(InstanceId member, TimeUs now);
  // A stream of the instance began; see FormationSwitch.
  void Reconnected(InstanceId instance, const std::optional<FormationTold>& latest, TimeUs now);
  void Reported(InstanceId instance, TimeUs now);
  // It left or was lost. REQUIRES: GroupControl still knows it, and will not after this.
  void Left(InstanceId instance, TimeUs now);
  // It says nothing; see FormationSwitch. A repeated call has no effect.
  void FellSilent(InstanceId instance, TimeUs now);

  void On(const FormationReported& event, TimeUs now);
  void On(const FormationCalled& event, TimeUs now);
  void On(const ModeReported& event, TimeUs now);
  void On(const OfflineQueued& event, TimeUs now);
  void Tick(TimeUs now);
  TimeUs NextDue() const { return due_.Next(); }

  // Whether the group holds a request of so many tokens, prompt and output, or may be bound to.
  // UNAVAILABLE: what keeps it from that may pass, such as a bind that failed, an instance that
  // is not back yet, or that the epochs that stand have `refused` the request. FAILED_PRECONDITION:
  // operators keep it from that. The text names the reason.
  absl::Status CanHold(const Key& key, int64_t tokens, const std::set<uint64_t>& refused,
                       TimeUs now) const;

  // For which members of the group a request of so many tokens waits, which none of its formations
  // holds: those that can be bound for it, and of which the formations run the fewest long
  // requests. Empty: none can be bound for it now.
  std::vector<InstanceId> AwaitedFor(const Key& key, int64_t tokens, TimeUs now) const;

  // Tokens of one request, prompt and output, in all blocks of so many instances like this one.
  static int64_t TokensMax(const WorkerIdentity& identity, int32_t size);

  // The live formation that the instance is a member of; null: it works alone.
  const FormationSwitch::Live* LiveOf(InstanceId instance) const;
  // `key` names a group of GroupControl. `formations`, `why`, `rejected` and `for_us` of it.
  struct Shown {
    struct One {
      std::vector<InstanceId> members;      // by rank
      std::string_view stage;               // static
      uint64_t epoch = 0;                   // 0: they work alone
      std::optional<SharedMode> mode = {};  // they share their weights
      bool pinned = false;
      TimeUs since_us = 0;
      std::string why;
    };
    std::vector<One> formations;  // of all members, in their order
    TimeUs since_us = 0;
    std::string why;
    std::vector<FormationChoice::Rejected> rejected;
  };
  Shown Show(const Key& key) const;
  absl::Status CheckInvariants() const;

 private:
  // An operator's order that is being carried out.
  struct Call {
    struct Want {
      std::vector<InstanceId> members;
      bool bound = false;   // together; otherwise each alone
      bool shares = false;  // not bound, but sharing their weights
      uint64_t epoch = 0;   // under which they are being bound; 0: not yet
    };
    CallId id;
    FormationOrder order;
    std::vector<Want> wants;  // not met yet
    std::vector<std::string> done;
  };
  struct State {
    explicit State(FormationSwitch formation) : formation(std::move(formation)) {}

    FormationSwitch formation;
    Pins pins;
    BindReasons reasons;
    std::vector<Call> calls;
    FormationChoice choice;  // the latest
    TimeUs chosen_us = -kSecondUs;
    TimeUs since_us = 0;              // of its latest change
    std::optional<TimeUs> urgent_us;  // GroupLoad::urgent_us
    ReleaseCauses ordered;
    TimeUs pause_us = kRetryMinUs;
    TimeUs retry_us = 0;  // not bound before, after a failure
    std::string failure;  // the latest
    struct Sharing {
      SharedModePolicy policy;
      std::string why;      // it works in its mode
      TimeUs retry_us = 0;  // not changed before, after a failure
    };
    std::map<uint64_t, Sharing> sharing;  // by epoch, of those that stand
  };
  struct Target {
    std::vector<InstanceId> members;
    Subset subset;
    BindReason reason = BindReason::kLoad;
    std::string why;
    bool shares = false;
  };

  State& StateOf(const Key& key, TimeUs now);
  State* Find(InstanceId instance, const Key** key);
  void Mark(const Key& key, const State& state);
  void Carry(const Key& key, State& state, SwitchEffects effects, TimeUs now);
  std::optional<ShiftRule> ShiftOf(const Key& key, const State& state,
                                   const PrepareFormation& prepare) const;
  void NoteEnded(const Key& key, State& state, const SwitchEnded& ended, TimeUs now);
  void NoteDone(State& state, const SwitchEnded& ended);

  // ---- what is to be bound ----
  void Drive(const Key& key, State& state, TimeUs now);
  std::vector<Target> Choose(const Key& key, State& state, TimeUs now);
  GroupLoad LoadOf(const Key& key, const State& state, TimeUs now) const;
  void AddNeeds(const Key& key, const State& state, TimeUs now, GroupLoad* load) const;
  int64_t LongestThatCanBeServed(const Key& key, const State& state, TimeUs now) const;
  bool ServesUrgent(const Key& key) const;
  bool CanServeUrgent(const Key& key, const State& state) const;
  absl::Status MayBeBound(const Key& key, const State& state, const Subset& subset,
                          TimeUs now) const;
  size_t ComingOf(const Key& key, const State& state, TimeUs now) const;
  bool WouldHold(const State& state, int64_t tokens, size_t coming) const;
  size_t LongRunningAt(const Key& key, const State& state,
                       const std::vector<InstanceId>& members) const;
  absl::Status RefusedBy(const State& state, int64_t tokens,
                         const std::set<uint64_t>& refused) const;
  void AddLimits(const Key& key, const State& state, GroupLoad* load) const;
  int64_t TokensIn(const std::vector<InstanceId>& members) const;
  std::vector<FormationSize> SizesOf(const Key& key, const State& state) const;
  const FormationProfile* ProfileOf(const std::string& model) const;
  absl::Status CanServe(const std::vector<InstanceId>& members) const;
  absl::Status CanBind(const Key& key, const std::vector<InstanceId>& members) const;
  absl::Status MayBind(const Key& key, const State& state,
                       const std::vector<InstanceId>& members) const;
  void ReleaseOthers(const Key& key, State& state, const std::vector<Target>& targets, TimeUs now);
  OwnSequences OwnOf(const State& state, const Target& target) const;
  // ---- shared weights ----
  void AddOffline(const Key& key, const State& state, GroupLoad* load) const;
  absl::Status CanShare(const Key& key, const State& state,
                        const std::vector<InstanceId>& members) const;
  void AddShared(const Key& key, State& state, std::vector<Target>* targets);
  SharedModeConfig ModeConfigOf(const Key& key) const;
  std::vector<int64_t> BatchesOf(const std::vector<InstanceId>& members) const;
  SharedModePolicy::Choice FirstMode(const Key& key, const State& state,
                                     const Target& target) const;
  void ChangeModes(const Key& key, State& state, TimeUs now);
  void NoteChanged(const Key& key, State& state, const ModeChanged& changed, TimeUs now);
  void BindFree(const Key& key, State& state, const std::vector<Target>& targets, TimeUs now);

  // ---- orders of operators ----
  absl::StatusOr<Key> KeyOf(const FormationOrder& order) const;
  absl::Status Take(const Key& key, State& state, Call* call) const;
  absl::Status TakeBind(const State& state, Call* call) const;
  std::vector<InstanceId> Meant(const Key& key, const State& state,
                                const FormationOrder& order) const;
  void Pin(const Key& key, const Call& call, State& state) const;
  static void PinAsItIs(const std::vector<InstanceId>& meant, State& state);
  Switch HowOf(const Key& key, const State& state, const FormationSwitch::Live& live) const;
  using Concerned = std::function<bool(const Call::Want& want)>;
  void FailCalls(State& state, const absl::Status& why, const Concerned& concerned);
  void FailBindsOf(State& state, const std::vector<InstanceId>& members, const absl::Status& why);
  void FailUnpinned(State& state);
  void AnswerCalls(State& state);

  const FormationConfig config_;
  const Parts parts_;
  FormationEpochs epochs_;
  std::map<std::string, int64_t> offline_;  // lines that wait, by model; none is 0
  std::map<Key, State> states_;             // of groups that ever had an order
  TimerQueue<Key> due_;
};

}  // namespace skein::scheduler::orchestrator
