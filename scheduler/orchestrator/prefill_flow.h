// PrefillFlow: a request's plan, from the decision which instances compute its prompt to its last
// chunk. Carries out the decisions of PlanChooser and of the rolling planner (planning.cc), sends
// the plan to its members, and follows their progress (assigning.cc). Parks requests that no
// instance can take now. Owns the parked requests, the work list of the rolling planner, and the
// pairs of instances that did not reach each other in a ring step. Part of OrchestratorCore.
//
// Tenants. Instances run the pieces of plans in the order in which the plans were made, and a
// planner does not look at tenants. So where several tenants send and there is a latency profile,
// plans are made late: while each instance has more than a third of a lease of work, or the
// rolling planner as many requests that wait as there are instances, requests are parked, and the
// next one to be planned is chosen fairly (parked_requests.h).
//
// Invariants (CheckInvariants, by the core's numbers): 7, a plan is whole; 8, the rolling planner
// knows the requests that have chunks to come; 10, the parked requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill/plan_chooser.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/prefill/rolling_plans.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/registry/unreachable_pairs.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/parked_requests.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

class PrefillFlow {
 public:
  // Not owned; they outlive it.
  struct Parts {
    RequestTable* requests = nullptr;
    Registry* registry = nullptr;
    PlanNumbers* numbers = nullptr;
    PrefillPools* pools = nullptr;
    DecodeFlow* decode = nullptr;
    PlanSender* sender = nullptr;
    ExplanationLog* explanations = nullptr;
    RequestEnds* ends = nullptr;
    std::vector<OrchestratorEffect>* effects = nullptr;
  };
  // `default_tokens_per_second`: of an instance that has not measured yet.
  PrefillFlow(double default_tokens_per_second, TimeUs lease_us, const Parts& parts)
      : plans_ahead_us_(lease_us / 3),
        parts_(parts),
        chooser_(parts.registry, &ring_pairs_, default_tokens_per_second) {}

  // ---- decisions: planning.cc ----

  // A new plan under a new epoch; without an instance that can take it now, the request is parked,
  // without one that ever can, it fails. REQUIRES a request without a plan.
  void Plan(Request& request, TimeUs now);
  void NoteArrival(const std::string& model, TimeUs now);  // a request was submitted
  // An instance of the model may take a request now that it could not before.
  void NoteRoom(const std::string& model);
  // What is due after each event: parked requests that may have room, and chunks that the rolling
  // planner starts.
  void PlanParked(TimeUs now);
  void DecideRolling(TimeUs now);
  // Chunks that nothing is in front of any more count as begun.
  void NoteStarts(TimeUs now);

  // ---- a plan and its members: assigning.cc ----

  void Accepted(Request& request, Member& member, TimeUs now);
  void TakeProgress(Request& request, Member& member, const HeldRequest& held, TimeUs now);
  void MemberDone(Request& request, Member& member, TimeUs now);  // it has committed its part
  void NotePrefilled(Request& request, TimeUs now);               // the whole prompt is computed
  // A member could not compute a chunk with the others: they are planned apart for a while.
  void NoteRingBroken(const Request& request, TimeUs now);
  void ForgetInstance(InstanceId instance) { ring_pairs_.Forget(instance); }  // it has left
  void RunTimers(TimeUs now) { ring_pairs_.RunTimers(now); }
  TimeUs NextDue() const { return ring_pairs_.NextDue(); }
  const UnreachablePairs& ring_pairs() const { return ring_pairs_; }
  void NoteChunksEnded(Request& request, TimeUs now);
  void TakeFromPrefill(Request& request);
  // The plan is given up, or the request ends. Another plan may come.
  void ForgetPlan(Request& request, TimeUs now);

  PrefillCandidate CandidateOf(const Instance& instance) const {
    return chooser_.CandidateOf(instance);
  }
  uint64_t sp_plans() const { return sp_plans_; }  // first Assigns of plans on several instances
  absl::Status CheckInvariants() const;

 private:
  void AddPlan(Request& request, PlanExplanation explanation, TimeUs now);
  void FailUnplannable(Request& request);
  void Park(Request& request);
  void LeaveParked(Request& request);  // it has a plan
  bool PlansLater(const std::string& model, TimeUs now);
  void DecideRolling(const std::string& model, TimeUs now);
  void StartChunk(Request& request, const PrefillPools::Pool& pool, const ChunkPlan& start,
                  TimeUs now);
  void Join(Request& request, const PlannedChunk& chunk, TimeUs now);
  void SendPlan(Request& request, const std::vector<PlannedChunk>& chunks, TimeUs now);
  void AddChunk(Request& request, const PlannedChunk& chunk, PlanSequence sequence, TimeUs now);
  void ExplainShapes(Request& request, size_t first);  // of the chunks from that one on
  void NoteEntered(Request& request, const Member& member);
  absl::Status CheckPlan(const Request& request) const;

  // Of two reports: the next one comes before an instance has run out of work.
  const TimeUs plans_ahead_us_;
  Parts parts_;
  UnreachablePairs ring_pairs_;
  PlanChooser chooser_;
  RollingPlans rolling_;
  ParkedRequests parked_;
  std::set<std::string> rolled_;  // models of which the rolling planner may start a chunk
  uint64_t sp_plans_ = 0;
};

}  // namespace skein::scheduler::orchestrator
