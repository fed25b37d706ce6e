// AbandonedPlans: cancelled plans that some instances may still hold. A request is planned again
// only after each of them has reported the plan's end there, or a lease has passed; so no request
// has two live plans. Part of OrchestratorCore.
//
// No operation walks over the plans of others.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"

namespace skein::scheduler::orchestrator {

class AbandonedPlans {
 public:
  // An instance that may still hold the plan. It may be computing the prompt: should its process
  // end before it has reported the plan's end, that is evidence (engine_failures.h).
  struct Holder {
    InstanceId instance;
    bool may_compute = false;
  };
  // Until `end_us`, by the listening clock. REQUIRES a request that is not known, and holders.
  void Add(RequestId id, Epoch epoch, const std::vector<Holder>& holders, TimeUs end_us);
  // The instance no longer has the plan. True: no instance has it, and it is forgotten.
  bool Left(RequestId id, InstanceId instance);
  void Forget(RequestId id);

  bool Knows(RequestId id) const { return plans_.count(id) > 0; }
  bool Is(RequestId id, Epoch epoch) const { return EpochOf(id) == epoch; }
  Epoch EpochOf(RequestId id) const;  // 0: it is not known
  // The instance may still hold the plan, and may be computing the prompt.
  bool MayCompute(RequestId id, InstanceId instance) const;
  // The requests whose plan the instance may still have, by id.
  std::vector<RequestId> At(InstanceId instance) const;

  struct Overdue {
    RequestId id;
    std::set<InstanceId> silent;  // they have not said that it has ended
  };
  // Takes one whose time has passed; it is forgotten.
  std::optional<Overdue> TakeOverdue(TimeUs listened_us);
  TimeUs NextEnd() const { return ends_.Next(); }  // by the listening clock

  absl::Status CheckInvariants() const;

 private:
  struct Plan {
    Epoch epoch;
    std::map<InstanceId, bool> holders;  // whether each may be computing the prompt
  };
  void TakeFrom(InstanceId instance, RequestId id);

  std::map<RequestId, Plan> plans_;
  std::map<InstanceId, std::set<RequestId>> at_;
  TimerQueue<RequestId> ends_;
};

}  // namespace skein::scheduler::orchestrator
