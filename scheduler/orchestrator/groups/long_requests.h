// LongRequests: the requests whose prompt and output no decode instance can hold alone. A bound
// group of enough members can: each keeps a part of the heads, so its blocks hold more tokens
// (Flying Serving, section 3, use case 3). Such a request waits here (State::kGrouping) until a
// group that holds it is bound, and is announced to its lead with the formation and without
// writers: the group computes prompt and output itself (scheduler/worker/README.md). No prefill
// instance takes part. Part of OrchestratorCore.
//
// Each request that waits is counted at one group of its model (GroupNeeds), so that the policy
// binds that one, and at another once that one can hold it and has fewer long ones; while it runs,
// at the formation that runs it, so that this stays bound. It is announced to whichever group of
// its model stands and holds it. Those of a higher priority go first, then in the order of
// submission. So that nobody waits for ever, later ones do not join a formation that is too small
// for an earlier one and has some of the instances for which that one waits (Claim): what runs
// there ends, and nothing new begins.
//
// Ends. A request that is longer than the widest group (WidestGroups) is refused when it is
// submitted, unless an orchestrator before has accepted it: the group may not be complete yet.
// Refused is also one that no group may be bound for: by the operators' pins, or because people
// alone bind. One that waits fails when that has come to be so, or when for wait_us no group could
// be bound for another reason, such as binds that fail, or an instance that has not come back; the
// error names that reason, the request's length and the limits. Its deadline counts as of others.
// What the lead refuses is planned again, not under the same formation; what it took, but its
// router did not attach to in time, under any, at another lead before others.
//
// Cost. A call costs O(log requests) plus the groups of the model, but for WidestGroups, which
// walks over the model's instances when one came, went, or began or ended to drain. PlaceWaiting
// looks at the models that GroupNeeds::NoteChange named. If requests of one wait, it looks for a
// lead for each length in turn, until none holds the shortest: a walk over the model's instances
// each. Every kCheckUs, and when an instance came or went, it asks for each request that waits
// whether a group can still be bound.
//
// Invariants (CheckInvariants, by the core's numbers): 12, exactly the requests with in_group are
// known here; those that wait have no decode instance; GroupNeeds counts each at its group.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/orchestrator/groups/formations.h"
#include "scheduler/orchestrator/groups/group_control.h"
#include "scheduler/orchestrator/groups/group_needs.h"
#include "scheduler/orchestrator/groups/widest_groups.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class LongRequests {
 public:
  using Key = GroupControl::Key;
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    const GroupControl* groups = nullptr;
    const Formations* formations = nullptr;
    GroupNeeds* needs = nullptr;
    PlanNumbers* numbers = nullptr;
    PrefillFlow* prefill = nullptr;  // of those that fit an instance again
    PlanSender* sender = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  static constexpr TimeUs kCheckUs = kSecondUs;

  // `wait_us`: for so long a request waits while no group can be bound for it.
  LongRequests(TimeUs wait_us, const Parts& parts)
      : wait_us_(wait_us), parts_(parts), widest_(parts.registry, parts.groups) {}

  // No decode instance alone holds it. False while the model has none.
  bool IsLong(const RequestHead& spec) const;
  // Of a long request that is submitted, or was `accepted` by an orchestrator before.
  // INVALID_ARGUMENT: no group can hold it either, or none may be bound for it; or it asks for what
  // a group does not do.
  absl::Status MaySubmit(const RequestHead& spec, bool accepted, TimeUs now) const;
  // It waits for a group from now on. REQUIRES: it is long, and has no plan.
  void Plan(Request& request);
  // Its plan is given up, or it has ended. Others are ignored.
  void Forget(const Request& request);
  // What is due after each event.
  void PlaceWaiting(TimeUs now);
  TimeUs NextDue() const { return due_.Next(); }  // of PlaceWaiting; kNever: nobody waits

  int64_t WaitingOf(const std::string& model) const;
  TimeUs OldestWait(TimeUs now) const;  // 0: nobody waits
  absl::Status CheckInvariants() const;

 private:
  // A place among those that wait: the highest priority first, then by submission.
  struct Place {
    int64_t behind = 0;  // minus its priority
    uint64_t number = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Entry {
    int64_t tokens = 0;        // prompt and output
    std::optional<Key> group;  // at which it is counted
    uint64_t epoch = 0;        // under which it is: of the formation that runs it; 0: it waits
    TimeUs stuck_us = kNever;  // since when no group can be bound for it
  };
  struct Line {  // of a model
    std::map<Place, RequestId> places;
    std::multiset<int64_t> lengths;  // of the same requests, in tokens
    std::set<RequestId> fresh;       // of them, those that were not looked at yet
    TimeUs check_us = 0;             // when the next check is due
  };
  // Of a request that waits: instances that later ones leave to it, if their formation holds less.
  struct Claim {
    int64_t tokens = 0;
    std::vector<InstanceId> instances;
  };
  using Claims = std::map<Key, std::vector<Claim>>;  // of each group ever longer ones
  static Place PlaceOf(const Request& request);

  std::string LimitsOf(const RequestHead& spec, TimeUs now) const;
  absl::Status CanGroup(const std::string& model, int64_t tokens, const std::set<uint64_t>& refused,
                        TimeUs now, std::optional<Key>* best) const;
  void Check(const std::string& model, TimeUs now);
  void PlaceAtLeads(const std::string& model, TimeUs now);
  void TryPlace(Request& request, const Claims& claims, TimeUs now);
  void SeekGroup(Request& request, TimeUs now);
  std::optional<Key> EmptierThan(const Key& own, const Request& request, TimeUs now) const;
  void AddClaim(RequestId id, TimeUs now, Claims* claims) const;
  void LeaveLine(const Request& request, int64_t tokens);
  bool IsClaimed(const Key& group, const Instance& lead, const Claims& claims) const;
  Instance* LeadFor(const Request& request, int64_t tokens, const Claims& claims) const;
  void Announce(Request& request, Instance* lead, TimeUs now);
  void CountAt(Entry* entry, const std::optional<Key>& group, uint64_t epoch = 0);

  const TimeUs wait_us_;
  const Parts parts_;
  std::map<RequestId, Entry> entries_;
  WidestGroups widest_;
  std::map<std::string, Line> waiting_;  // by model; no line is empty
  TimerQueue<std::string> due_;          // the checks of the lines
};

}  // namespace skein::scheduler::orchestrator
