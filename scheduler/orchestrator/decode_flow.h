// DecodeFlow: carries out which instance decodes a prompt (decode/decode_pool.h says how that is
// chosen, decode/decode_placement.h who may get one, and why so): placement with the plan,
// questions of leads and the wait for room, refusals, the opened transfer, the end of decoding.
// Owns the waiting lines, the plans that have not opened their transfer, and the pairs of instances
// that do not reach each other: a request is decoded at an instance that one of its prefill
// instances does not reach only if it has no other. Part of OrchestratorCore.
//
// Invariants (CheckInvariants, by the core's numbers): 3, the waiting lists; 9, the plans without
// decode room.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/decode/decode_placement.h"
#include "scheduler/orchestrator/decode/decode_pool.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/registry/unreachable_pairs.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/shared_prompts.h"

namespace skein::scheduler::orchestrator {

class DecodeFlow {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    PrefillPools* pools = nullptr;
    PlanSender* sender = nullptr;
    SharedPrompts* sharing = nullptr;
    ExplanationLog* explanations = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  struct Limits {
    TimeUs place_decode_wait_us = 0;  // see WaitedLong
    int32_t urgent_priority = 1;      // a request of this priority or a higher one is urgent
  };
  DecodeFlow(const Limits& limits, const Parts& parts)
      : limits_(limits), parts_(parts), pools_(parts.registry) {}

  void On(const PlaceDecodeCalled& event, TimeUs now);
  void On(const TransferOpened& event, TimeUs now);

  // The request has a plan, or new members, and its transfer is not open.
  void BeginPlan(const Request& request);
  // If an instance has room and nobody waits; otherwise its lead will ask.
  void PlaceWithPlan(Request& request);
  // All members accepted the plan; it is kAssigned. A lead that has asked waits from now on.
  void Assigned(Request& request, TimeUs now);
  // Its transfer is open at request.decode. REQUIRES that. A second time: nothing.
  void Opened(Request& request, TimeUs now);
  // An instance of its plan says that it has opened it. Counts if that is the lead: the decode
  // instance says so itself, unless it cannot reach this orchestrator.
  void OpenedByLead(Request& request, InstanceId instance, TimeUs now);
  // Its lead's question, if any, is answered with this.
  void Answer(Request& request, absl::Status status);
  // Its lead has asked, and was not answered, for place_decode_wait_us. A plain request then gives
  // its prefill blocks back, and what is computed in them, if an older SP plan may wait for them at
  // its instance, because that plan may hold the decode room: it is answered RESOURCE_EXHAUSTED.
  // All others wait on, for as long as it takes, and are answered when there is room.
  //
  // Plans of a former orchestrator are not known. What these wait for is bounded by the deadline of
  // their steps.
  void WaitedLong(Request& request, TimeUs now);
  // The stream on which its lead asked is over.
  void ForgetAsking(Request& request);
  void TakeFromDecode(Request& request);
  // The plan is given up, or the request ends. REQUIRES that the lead's question was answered.
  void ForgetPlan(Request& request);

  // A handoff between these two was not made, or was.
  void NoteUnreached(InstanceId prefill, InstanceId decode, TimeUs now) {
    pairs_.Failed(prefill, decode, now);
  }
  void NoteReached(InstanceId prefill, InstanceId decode) { pairs_.Worked(prefill, decode); }
  void ForgetInstance(InstanceId instance) { pairs_.Forget(instance); }  // it has left
  const UnreachablePairs& pairs() const { return pairs_; }
  void RunTimers(TimeUs now);
  TimeUs NextDue() const { return pairs_.NextDue(); }

  // An instance of the model may have room now, or a plan has left its instances.
  void NoteChange(const std::string& model) { placement_.NoteChange(model); }
  // In the order of decode_placement.h. Those that asked since the last call and wait on are
  // counted as degraded.
  void PlaceWaiting(TimeUs now = 0);

  // Requests of the model that wait for room.
  int64_t WaitingOf(const std::string& model) const {
    return static_cast<int64_t>(placement_.WaitingOf(model));
  }
  // Whether one of them has this priority or a higher one.
  bool SomeWaitFrom(const std::string& model, int32_t priority) const {
    return placement_.SomeWaitFrom(model, priority);
  }
  TimeUs OldestWait(TimeUs now) const;  // 0: nobody waits
  absl::Status CheckInvariants() const;

 private:
  void PlaceWaiting(const std::string& model, TimeUs now);
  bool IsUrgent(const Request& request) const {
    return request.spec->priority >= limits_.urgent_priority;
  }
  std::set<InstanceId> LastResorts(const Request& request) const;
  DecodePool::Choice Choose(const Request& request, bool asked);
  bool TryPlace(Request& request);
  void PlaceAt(Request& request, InstanceId instance, bool with_plan);
  bool MustWaitForOlder(const Request& request) const;
  void TakeRefusal(Request& request, const PlaceDecodeRequest& refusal, TimeUs now);
  void EnterLine(Request& request, TimeUs now);
  void LeaveLine(Request& request);
  void EndUnopened(const Request& request);  // it opened, or was given up
  Placed PlacedOf(const Request& request) const {
    return parts_.registry->PlacedAt(request.decode, request.epoch);
  }
  absl::Status CheckRequest(const Request& request) const;

  const Limits limits_;
  Parts parts_;
  DecodePlacement placement_;
  DecodePools pools_;
  UnreachablePairs pairs_;
  std::vector<RequestId> entered_;  // the lines, since the last PlaceWaiting
};

}  // namespace skein::scheduler::orchestrator
