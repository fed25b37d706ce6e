// The parts of OrchestratorCore, and what concerns several of them: the order of an event's steps,
// submission, timers, the ends of a request, the generation. Included by the core's own files only.
//
//   RouterSide    routers connect, report, leave; their requests end for clients
//   WorkerSide    instances register, report, answer, leave; a new stream is reconciled
//   PrefillFlow   which instances compute a prompt, and what they have done of it
//   DecodeFlow    which instance decodes it, and the wait for room
//   Replanner     a plan is given up
//   LongRequests  requests that a bound group computes
//   SharedPrompts further choices of an answer, which share the first one's prompt
//   PlanSender    the messages about plans
//   GroupControl  which instances form a group
//   Formations    how the instances of each group are bound and released
//   RequestTable, Registry, PrefillPools, ExplanationLog, GoneList, PlanNumbers   shared tables
//
// orchestrator_core.cc has what happens; checks.cc what the core shows of itself.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/orchestrator/decode_flow.h"
#include "scheduler/orchestrator/explain/explanation_log.h"
#include "scheduler/orchestrator/groups/formations.h"
#include "scheduler/orchestrator/groups/group_control.h"
#include "scheduler/orchestrator/groups/group_needs.h"
#include "scheduler/orchestrator/groups/long_requests.h"
#include "scheduler/orchestrator/hearing.h"
#include "scheduler/orchestrator/orchestrator_core.h"
#include "scheduler/orchestrator/plan_numbers.h"
#include "scheduler/orchestrator/plan_sender.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/prefill_flow.h"
#include "scheduler/orchestrator/registry/gone_list.h"
#include "scheduler/orchestrator/registry/refused_peers.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/replanner.h"
#include "scheduler/orchestrator/request_ends.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/orchestrator/router_side.h"
#include "scheduler/orchestrator/shared_prompts.h"
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler {

class OrchestratorCore::Impl final : private orchestrator::RequestEnds {
 public:
  explicit Impl(const OrchestratorConfig& config);

  std::vector<OrchestratorEffect> Handle(const OrchestratorEvent& event, TimeUs now);
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  ModelTotals TotalsOf(const std::string& model) const;
  OrchestratorSnapshot Totals() const;
  OrchestratorSnapshot Snapshot(TimeUs now) const;
  std::string_view StateOf(RequestId id) const;
  std::vector<Explanation> Explain(const std::string& request, TimeUs now) const;
  std::vector<Explanation> List(RequestOrder order, size_t limit, TimeUs now) const;

 private:
  using State = orchestrator::State;
  using Request = orchestrator::Request;

  // The other events go to the part that has On for them.
  void On(const SubmitCalled& event);
  void On(const RegisterCalled& event);
  void On(const RouterConnected& event);
  void On(const DrainCalled& event);
  void On(const ReplacePlanningTables& event);
  void On(const OrchestratorTick& event);

  absl::Status MaySubmit(const SubmitCalled& event);
  absl::Status HasRoom() const;  // for one more request, held or planned
  absl::Status HasCapacity(const RequestHead& spec);
  void Submit(const SubmitCalled& event);
  void SubmitEarly();  // some of what has waited for long enough, at each tick
  void Refuse(RequestId id, absl::Status status);
  void PlanOrphans();   // whose first choice has ended or moved
  void TellAccepted();  // to the routers of requests that came in this event, and have to wait

  // Takes a higher generation if need be. FAILED_PRECONDITION: there is none; nothing has changed.
  absl::Status Follow(const Generation& seen);
  // FAILED_PRECONDITION: no protocol revision in common; `peer` is shown as refused.
  absl::Status CheckBuild(RefusedPeer peer, const PeerBuild& build);
  Generation Own() const { return {numbers_.generation(), config_.incarnation}; }
  // The store of those that elect a leader may have been lost, with the number of the one before:
  // who has listened to that one says so before anything is planned.
  bool MayHavePredecessor() const { return numbers_.generation() > 1 || config_.settle_us > 0; }
  // Of workers and routers, that stand.
  size_t Streams() const { return registry_.streams() + router_side_.routers().streams(); }
  // A new orchestrator does not know at once which instances exist, and neither does one to which
  // nobody could come for long. Submitted requests wait until instances have reconnected.
  void Settle() {
    const TimeUs lease_us = config_.instance_lease_us;
    const bool looks = config_.settle_us > 0;
    settled_by_us_ = now_ + (looks ? lease_us : lease_us / 2);
    router_side_.HoldUntil(now_ + (looks ? std::min(config_.settle_us, lease_us) : lease_us / 2));
  }
  // Instances are still to come.
  bool Settling() const { return now_ < settled_by_us_ && !ServesAll(); }
  bool ServesAll() const;  // there is a model, and each has instances of both roles
  // The same, for this request: it fits none of those that have come, in any way.
  bool FitsLater(const SubmitCalled& event);

  void NoteHearing(const OrchestratorEvent& event);
  void LookWhetherDeaf();  // at a tick

  void RunTimers();
  void RunTimers(Request& request);

  // RequestEnds. The first three erase the request.
  void CloseByRouter(Request& request) override;
  void Fail(Request& request, const absl::Status& why) override;
  void Finish(Request& request, FinishReason reason) override;
  void Replan(Request& request, const absl::Status& why) override;
  void Erase(Request& request, const std::string& why);  // cancels wherever it may still be

  OrchestratorConfig config_;
  TimeUs now_ = 0;
  TimeUs settled_by_us_ = 0;  // a successor: when it waits for no more instances
  bool started_ = false;      // the first event was handled
  std::vector<OrchestratorEffect> effects_;
  std::vector<RequestId> submitted_;  // in this event
  orchestrator::Hearing hearing_;
  orchestrator::PlanNumbers numbers_;
  orchestrator::RequestTable requests_;
  Registry registry_;
  orchestrator::PrefillPools pools_;
  GoneList gone_;
  RefusedPeers refused_peers_;
  orchestrator::GroupControl groups_;
  orchestrator::GroupNeeds needs_;
  orchestrator::ExplanationLog explanations_;
  orchestrator::PlanSender sender_{&registry_, &effects_};
  orchestrator::SharedPrompts sharing_{{&requests_, &registry_, &numbers_, &sender_, &effects_}};
  orchestrator::DecodeFlow decode_;
  orchestrator::Formations formations_;
  orchestrator::PrefillFlow prefill_;
  orchestrator::LongRequests longs_;
  orchestrator::Replanner replanner_;
  orchestrator::RouterSide router_side_;
  orchestrator::WorkerSide worker_side_;
  uint64_t refused_ = 0;  // for lack of capacity
};

}  // namespace skein::scheduler
