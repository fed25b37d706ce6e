// Replanner: gives up a plan. It is cancelled everywhere by its epoch, and the request is planned
// again when all instances that had the plan report its end, were lost, or were silent for a lease.
// Owns the plans that were given up and may still be somewhere. Part of OrchestratorCore.
//
// A request under which too many engines failed is not planned again; those that failed under
// another orchestrator count (engine_failures.h has the rule).
//
// Invariant (CheckInvariants, by the core's number): 7, a request that is replanning is on no
// instance.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/groups/long_requests.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill/abandoned_plans.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/shared_prompts.h"

namespace skein::scheduler::orchestrator {

class Replanner {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    const Registry* registry = nullptr;
    PlanNumbers* numbers = nullptr;
    PrefillFlow* prefill = nullptr;
    LongRequests* longs = nullptr;
    DecodeFlow* decode = nullptr;
    PlanSender* sender = nullptr;
    SharedPrompts* sharing = nullptr;
    ExplanationLog* explanations = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  struct Limits {
    int replans_max = 0;  // of one request
    TimeUs lease_us = 0;  // of an instance
  };
  Replanner(const Limits& limits, const Parts& parts) : limits_(limits), parts_(parts) {}

  // Whether a failure at a member is worth another plan.
  static bool MayReplan(const Request& request, const absl::Status& why);
  // Fails the request after too many replans.
  void Replan(Request& request, const absl::Status& why, TimeUs now);
  // The same for what is not the request's fault: an instance that did not take it. That may happen
  // any number of times before the deadline.
  void GiveUpPlan(Request& request, const absl::Status& why, TimeUs now);
  // True: too many engines failed under it, and it has ended.
  bool FailSuspect(Request& request);

  // The request is replanning, and this was the epoch of its last plan.
  bool IsGivenUp(RequestId id, Epoch epoch) const { return abandoned_.Is(id, epoch); }
  // The instance no longer has the request's plan that was given up.
  void HasLeft(Request& request, InstanceId instance, TimeUs now);
  // The instance holds these requests, and no other.
  void HasOnly(InstanceId instance, const std::vector<HeldRequest>& held, TimeUs now);
  // The instance was lost. `ended`: its process, if that has ended: it counts against the requests
  // whose prompt it may have been computing, before they are planned again. 0: it is no evidence.
  void HasLost(InstanceId instance, Incarnation ended, TimeUs now);
  void LeaveTheSilent(TimeUs now);
  void Forget(RequestId id) { abandoned_.Forget(id); }  // it has ended

  absl::Status CheckInvariants() const;

 private:
  void PlanAnew(Request& request, TimeUs now);

  Limits limits_;
  Parts parts_;
  AbandonedPlans abandoned_;
};

}  // namespace skein::scheduler::orchestrator
