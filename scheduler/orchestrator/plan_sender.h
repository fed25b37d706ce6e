// PlanSender: the messages about a plan, on the streams of the instances that it concerns: Assign
// and Start to its members, Announce and Withdraw to its decode instance, Cancel to each. Decides
// nothing. Part of OrchestratorCore.
//
// What goes to an instance without a stream is dropped: its worker's next stream begins with what
// the worker holds, and what is missing there is sent again or planned anew (reconnecting.cc).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/requests/request.h"

namespace skein::scheduler::orchestrator {

// For the request's router: its plan, and where it was announced, if anywhere.
Planned PlannedOf(const Request& request, const Registry& registry, TimeUs decided_us);

class PlanSender {
 public:
  // Neither is owned; both outlive it.
  PlanSender(Registry* registry, std::vector<OrchestratorEffect>* effects)
      : registry_(registry), effects_(effects) {}

  // Any message (Call...) to an instance.
  template <class Effect>
  void Send(Effect effect) {
    const Instance* to = registry_->Find(effect.instance);
    if (to != nullptr && to->connected()) effects_->push_back(std::move(effect));
  }

  // To each member, all of which are registered: the plan as it is now, under this sequence, of
  // which the chunks before `from_chunk` are known. The request counts as placed there from now on.
  void Assign(Request& request, size_t from_chunk, PlanSequence sequence);
  // To a member: the transfer is open, and all members have the plan. REQUIRES: MayStart.
  void Start(const Request& request, const Member& member);
  static bool MayStart(const Request& request);
  void StartMembers(const Request& request);  // each, if MayStart
  // To the request's decode instance: which instances will write its KV.
  void Announce(const Request& request);
  void Withdraw(const Request& request) {
    Send(CallWithdraw{request.decode, {request.spec->id, request.epoch}});
  }
  // `why` is for people. Ignored if the instance is not registered.
  void CancelAt(InstanceId instance, const Request& request, const std::string& why);
  void CancelAtMembers(const Request& request, const std::string& why);

 private:
  void AssignPlain(Request& request, PlanSequence sequence);
  void AssignMembers(Request& request, size_t from_chunk, PlanSequence sequence);
  Placed PlacedFor(Incarnation writer, const Request& request) const {
    Placed placed = registry_->PlacedAt(request.decode, request.epoch);
    placed.writer = writer;
    return placed;
  }

  Registry* registry_;
  std::vector<OrchestratorEffect>* effects_;
};

}  // namespace skein::scheduler::orchestrator
