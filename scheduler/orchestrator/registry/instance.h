// Instance: a worker as the orchestrator knows it: its last report, and the requests recorded as
// placed there. Registry owns it. Part of OrchestratorCore.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/held_digest.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/fairness/tenant_queues.h"
#include "scheduler/orchestrator/registry/pace.h"
#include "scheduler/orchestrator/registry/pool_counts.h"
#include "scheduler/placement/step_age.h"

namespace skein::scheduler {

// A request recorded as placed at an instance.
struct Placement {
  Epoch epoch;
  HeadPtr spec;
  bool announced = false;  // decode: placed with its plan, and the transfer is not open yet
  PlanSequence sp_plan;    // prefill: of the first chunk of its SP plan; 0: the plan is plain
};

using Placements = absl::btree_map<RequestId, Placement>;

// Requests placed at an instance that were not in its last report; at a decode instance: not as
// opened.
struct Unreported {
  int64_t requests = 0;
  int64_t blocks = 0;  // with which they open
  int64_t prompt_tokens = 0;
  bool operator==(const Unreported&) const = default;
};

// Code that changes a field that Placeable, Serves, TakesAssigns, PoolLoad or the choice of a
// decode instance (decode_pool.h) reads must then call Registry::Recount.
struct Instance {
  InstanceId id;
  WorkerIdentity identity;
  WorkerLoad load;
  CallId connection;      // the stream of its worker; 0: it is broken
  bool reported = false;  // `load` is its own
  TimeUs heard_us = 0;
  TimeUs lease_end_us = 0;  // by the listening clock
  TimeUs spoke_us = 0;      // its last word, likewise
  bool reached = false;     // its address has accepted a connection from here
  // It says nothing (registry.h). `quiet`: it gets nothing new.
  bool quiet = false;
  bool silent = false;
  // What it holds, as its registration and its reports have told.
  absl::btree_map<std::pair<RequestId, Epoch>, HeldRequest> held;
  HeldDigest held_digest;                  // of these
  Placements placed;                       // by Place and Take alone
  TenantQueues queues;                     // the prompts of these
  absl::btree_set<PlanSequence> sp_plans;  // of these
  Unreported unreported;
  Unreported announced;  // the part of `unreported` whose placements are announced
  bool avoid = false;    // could not take an Assign since its last report
  TimeUs registered_us = 0;
  std::optional<bool> drain_order;  // an operator's
  // Decode: its lease expired, but a router hears it. It keeps its requests and gets nothing new.
  bool missed = false;
  // Decode, of the formation that it is bound in (Formations::Mark): it does not lead it, and gets
  // nothing new; or it leads it, and its new requests run in the group of this epoch (0: alone).
  bool closed_by_group = false;
  uint64_t leads_formation = 0;
  int32_t formation_size = 1;
  bool dedicated = false;  // it leads a group that is bound for priority

  PaceOfInstance pace;  // as PaceWatch judged its last report

  bool draining() const { return load.draining || drain_order == true; }
  bool Suspect() const { return IsStepSuspect(load.step_age_us, load.step_estimate_us); }
  bool succeeded = false;  // another of its kind came after its stream broke
  bool connected() const { return connection != CallId{}; }
  bool Placeable() const {
    return connected() && reported && !missed && !quiet && !draining() && load.invariants_ok &&
           !Suspect() && !pace.TakesNothing();
  }
  // It may take requests, now or as soon as it reports or has room.
  bool Serves() const { return !missed && !draining() && load.invariants_ok; }
  // Whether it can take one more request; `without` of those placed here do not count.
  bool HasRoom(int64_t without = 0) const {
    return identity.max_requests == 0 ||
           static_cast<int64_t>(placed.size()) - without < identity.max_requests;
  }
  bool TakesAssigns() const { return Placeable() && !avoid && HasRoom(); }
  // It drains, by its own report, and holds nothing: nothing is lost when it is stopped.
  bool Drained() const;
  void Place(const HeadPtr& spec, Epoch epoch, bool announced_only = false,
             PlanSequence sp_plan = {});
  void Opened(RequestId request);  // it is announced no longer
  void Take(RequestId request);    // it is not there, or no longer
  Placements TakeAll();            // nothing is there any more
  // An SP plan that was made before this one, and has a part here that it has not committed.
  bool HasSpPlanBefore(PlanSequence plan) const {
    return !sp_plans.empty() && *sp_plans.begin() < plan;
  }
  // What the worker tells of what it holds.
  void SetHeld(const std::vector<HeldRequest>& all);
  void TakeHeld(const HeldRequest& one);  // new, or moved on
  void DropHeld(RequestId request, Epoch epoch);
  void CountUnreported();  // anew

  // UnknownOf and CompareHeld compare what the worker reports at the start of a stream with the
  // records here. They may differ only by the last messages of the previous stream, because a
  // stream that breaks loses no message before one that arrived.
  //
  // Those of `all` that are not placed here: the worker cancels them. Requests of an earlier
  // orchestrator, with epochs below `first_epoch`, are not among them.
  std::vector<HeldRequest> UnknownOf(const std::vector<HeldRequest>& all,
                                     uint64_t first_epoch) const;
  // The requests that are placed here, by id.
  struct Compared {
    std::vector<HeldRequest> held;     // as the worker tells them, under the same epoch
    std::vector<HeldRequest> missing;  // not held, or under another epoch; with that of `placed`
  };
  Compared CompareHeld(const std::vector<HeldRequest>& all) const;
  absl::Status CheckPlaced() const;  // `unreported`, `announced` and `sp_plans`
  // It changed since Registry::TakeChanged named it last.
  bool change_noted() const { return change_noted_; }

 private:
  friend class Registry;
  // A request that is held so counts as reported.
  bool IsReported(const HeldRequest& held) const {
    return identity.role == Role::kPrefill || held.opened;
  }
  bool IsReported(RequestId request, Epoch epoch) const;
  void CountIfUnreported(const Placement& placement, int64_t times);
  void Count(const Placement& placement, int64_t times);
  // The placement under this epoch is reported, or is no longer.
  void NoteReported(RequestId request, Epoch epoch, bool reported);
  Unreported Of(const RequestHead& spec) const;
  void Recount();
  void NoteChange();
  PoolPart Part() const;

  PoolPart counted_;                           // its part in *sums_
  PoolSums* sums_ = nullptr;                   // of its pool; null: it is not in the registry
  std::vector<Instance*>* changed_ = nullptr;  // of its pool; null: as above
  TimeUs* pool_spoke_us_ = nullptr;            // of its pool; null: as above
  bool change_noted_ = false;                  // it is in *changed_
};

}  // namespace skein::scheduler
