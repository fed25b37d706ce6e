// OrchestratorCore: registry of instances, placement of requests. One thread owns it.
//
// Life of a request here: assigning (Assign under way) -> assigned (queued at its prefill
// instances) -> placed (its transfer to the decode instance is open) -> gone. A request whose
// decode instance was not chosen with the plan, or refused, goes through waiting (its lead asked,
// no decode room yet; FIFO per model) -> reserving (its lead was answered) between assigned and
// placed (decode_placement.h). Epochs and plan sequences only grow; a request gets a new epoch with
// each plan it is tried with.
//
// Without `planning` every plan is plain: one instance computes the whole prompt, the one with the
// least queue time by the rate it reports. With it, plans may span instances (messages.h): the
// planner of scheduler/plan decides from queue times estimated with the latency model.
// Under the policy `rolling` a request is queued here until the planner starts its first chunk;
// each chunk is one more Assign.
//
// A plan that loses an instance, or that one refuses, is cancelled everywhere by epoch. The request
// is replanning until all instances that had the plan report that it has ended there; then it is
// planned again, at most max_replans times. It is not planned again if its KV may be complete,
// unless the decode instance reports that it is not. When no prefill instance can take the request
// now, because all are full, silent or leaving, it is parked until one can
// (requests/parked_requests.h). Parking does not count as a replan, so an accepted request fails
// for lack of room only at its deadline.
//
// A request that no decode instance holds alone is grouping until a bound group that holds it has
// opened it; then it is placed (groups/long_requests.h).
//
// A request is refused with RESOURCE_EXHAUSTED, before anything is begun, when the instances of its
// model hold as many requests as they can (WorkerIdentity::max_requests).
//
// A worker is connected by one stream, which carries all messages in both directions, in order.
// When it breaks, the instance gets nothing new until the worker's next stream. That stream's first
// message lists what the worker holds; what is missing there is sent again or planned again
// (reconnecting.cc). An instance is lost when it was silent for a lease, when another process
// registers with its endpoint, or when its stream broke and its address refuses connections.
//
// A router is also connected by one stream: its requests, their plans, and how they ended for
// clients. When it breaks, the requests continue. The next stream starts with the router's state:
// requests that it no longer has are cancelled, and it gets the state of the others
// (router_side.h). Without a stream for a lease, requests that are not placed are cancelled.
//
// Epochs and ids begin with the orchestrator's generation. A worker or router that has seen a
// higher one reports it or refuses this orchestrator, which then takes an even higher one and
// restarts all streams.
//
// A successor holds submitted requests for half a lease, until the instances have reconnected; or,
// with settle_us, for that time, and then until every model has instances of both roles, at most a
// lease. Until then it also holds a request that fits none of those that have come, and would be
// refused.
//
// A request whose epoch has another generation was issued by a predecessor. It is left alone (its
// token stream continues between router and workers) and counts through its instance's reported
// load.
//
// Invariants, by number (CheckInvariants names them):
//   1. Every submitted request ends exactly once: by its router's RouterEnded, or with Failed or
//      PlanEnded.
//   2. A request is on live instances only, or placed at a live decode instance.
//   3. Waiting lists hold exactly the waiting requests, in the order of their first asking.
//   4. Epochs and plan sequences only grow.
//   5. All instances of a model have one KV shape and digest; its prefill instances one
//      max_batch_tokens.
//   6. The earliest timer that is remembered is not later than any request's.
//   7. A plan is whole: chunks on block boundaries with growing members, the lead among the first.
//      A queued or replanning request is on no instance: no request has two live epochs.
//   8. The rolling planner knows exactly the requests that are queued or have chunks to come.
//   9. Cached aggregates, which spare decisions a walk over all requests, agree with the requests:
//      timelines, plans without decode room, each instance's unreported load.
//  10. The parked requests are exactly those of the lines by model; live requests are counted by
//      model.
//  11. SharedPrompts lists exactly the requests that share the prompt of another one.
//  12. LongRequests lists exactly the requests that a bound group computes or is to compute, and
//      GroupNeeds counts them by group.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/peer_build.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/orchestrator/orchestrator_events.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"
#include "scheduler/orchestrator/registry/gone_list.h"
#include "scheduler/orchestrator/registry/pace.h"
#include "scheduler/orchestrator/registry/pace_watch.h"
#include "scheduler/orchestrator/registry/pool_counts.h"
#include "scheduler/orchestrator/registry/refused_peers.h"

namespace skein::scheduler {

struct OrchestratorConfig {
  // Of this process: above those of its predecessors, as far as it knows. 1 to kGenerationMax.
  uint64_t generation = 1;
  Incarnation incarnation;  // of this process
  int64_t max_requests = 4096;
  TimeUs instance_lease_us = 3 * kSecondUs;
  // An instance that is silent for this time keeps nothing, while others of its pool serve; from
  // two thirds of it on it gets nothing new. At least half a lease: workers report every sixth. 0:
  // only leases count.
  TimeUs instance_silent_us = 0;
  // Of one that peers look for at once, as after an election: the time in which nearly all find it,
  // whatever its generation. 0: half a lease, whoever has come, from the second generation on.
  TimeUs settle_us = 0;
  // How often a lead that waits for decode room is checked: it may have to give its prefill blocks
  // back (DecodeFlow::WaitedLong).
  TimeUs place_decode_wait_us = 5 * kSecondUs;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none
  double default_tokens_per_second = 1000;       // of an instance that has not measured yet
  // Null: every plan is plain. REQUIRES CheckPlanning.
  std::shared_ptr<const PlanningConfig> planning = nullptr;
  int max_replans = 6;             // of one request
  size_t max_explanations = 1000;  // of requests that have ended
  orchestrator::FormationConfig formations = {};
  size_t max_gone = 64;  // instances and routers that were here
  TimeUs gone_kept_us = 3600 * kSecondUs;
  PeerBuild build = {};           // of this process
  size_t max_refused_peers = 64;  // that are shown to operators
  // Longer than the time between two attempts of a peer.
  TimeUs refused_peer_kept_us = 30 * kSecondUs;
  PaceConfig pace = {};  // which instances are slow
  TimeUs hung_step_us =
      10 * kSecondUs;  // from this age of its step on an instance may hang; 0: never
};

struct InstanceStatus {
  InstanceId instance;
  WorkerIdentity identity;
  WorkerLoad load;
  TimeUs silent_us = 0;         // since its last word
  int64_t placed_requests = 0;  // that the orchestrator believes to be there
  double queue_seconds = 0;     // prefill: estimated
  double freeness = 0;          // decode
  int64_t virtual_blocks = 0;   // decode: placed there since its last report
  TimeUs registered_us = 0;     // ago
  bool placeable = false;
  bool drained = false;  // it may be stopped
  // Decode: routers that hear it, and whether they alone do: it does not report, so it keeps its
  // requests and gets no new ones.
  int64_t heard_by = 0;
  bool missed = false;
  PaceOfInstance pace;  // beside its peers
  bool hangs = false;   // its step does not end
};

struct RouterStatus {
  RouterIdentity identity;
  RouterLoad load;
  TimeUs silent_us = 0;
  bool draining = false;
  bool drained = false;
};

// Some instances of a group, and how they work: alone, or bound together.
struct FormationStatus {
  std::vector<InstanceId> members;  // by rank
  std::string name;                 // "independent", "bound(2)", …
  std::string_view stage;           // of the switch under way, or "stands"; static
  uint64_t epoch = 0;               // 0: independent
  bool pinned = false;
  TimeUs for_us = 0;  // since when, ago
  std::string why;
};

// Instances of one node that form a group.
struct GroupStatus {
  std::string name;  // MODEL@NODE, of the prefill side with "/prefill" behind it
  Role role = Role::kPrefill;
  std::string model;
  std::string node;                 // "": a single instance that tells none
  std::vector<InstanceId> members;  // by id
  // Of all members, each in one, in their order; neighbours that work alone are one.
  std::vector<FormationStatus> formations;
  TimeUs for_us = 0;  // since its latest switch, ago
  std::string why;    // the policy's latest reasons
  struct Rejected {
    std::string formation;
    std::string why;
  };
  std::vector<Rejected> rejected;  // what else there was
  uint64_t generation = 0;         // of its communicators; 0: none were ordered yet
  int64_t ready = 0;               // members that have made them
};

// A model that ever had an instance. Costs no walk over its instances.
struct ModelTotals {
  std::string hash;          // of its weights, as its instances report it; "": it has none now
  int64_t block_tokens = 0;  // of its decode instances; 0: it has none now
  // The smallest max_positions of the instances that do not drain; 0: none of them has a limit.
  int64_t max_positions = 0;
  PoolLoad prefill, decode;
  int64_t prefill_placeable = 0, decode_placeable = 0;  // instances that get new requests
  int64_t missed = 0;                                   // decode instances
  struct Paces {                                        // instances by their pace
    int64_t slow = 0;
    int64_t suspect = 0;
    int64_t aside = 0;
  };
  Paces prefill_paces, decode_paces;
  // Requests that are parked, queued until the rolling planner starts them, or wait for a bound
  // group: they wait at no instance.
  int64_t waiting_here = 0;
};

struct OrchestratorSnapshot {
  std::vector<InstanceStatus> instances;   // by id
  std::vector<RouterStatus> routers;       // by endpoint
  std::vector<GroupStatus> groups;         // by role, model and node
  std::vector<Gone> gone;                  // the latest first
  std::vector<RefusedPeer> refused_peers;  // as `gone`
  std::map<std::string, ModelTotals> models;
  int64_t prefill_instances = 0;
  int64_t decode_instances = 0;
  int64_t requests = 0;  // alive, in whichever of the states that follow; each counts in one
  int64_t planning = 0;  // queued, to be planned anew, or submitted before the instances came back
  int64_t parked = 0;    // no prefill instance takes them now
  int64_t assigning = 0;
  int64_t assigned = 0;
  int64_t waiting = 0;    // for decode room, or for a bound group that holds them
  int64_t reserving = 0;  // their leads were answered, and open the transfer
  int64_t placed = 0;
  int64_t sharing = 0;        // further choices of an answer that get the first one's prompt
  TimeUs oldest_wait_us = 0;  // of those waiting
  uint64_t submitted = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;  // for lack of capacity, before anything was begun
  uint64_t instances_lost = 0;
  uint64_t misses = 0;          // how often an instance was missed
  uint64_t suspected = 0;       // how often one became suspect by its pace
  uint64_t set_aside = 0;       // and how often one was set aside
  uint64_t hung = 0;            // how often requests left one whose step did not end
  int64_t unreached_pairs = 0;  // of instances that are not planned together
  uint64_t pair_failures = 0;   // how often a pair became one
  std::map<std::pair<std::string, Role>, uint64_t> lost;  // the same by model and role
  uint64_t sp_plans = 0;        // first Assigns of plans on more than one instance
  uint64_t shared_prompts = 0;  // of further choices of an answer, not computed again
  uint64_t replans = 0;
  uint64_t digest_mismatches = 0;           // reports that did not fit what was told before
  DegradedCounts degraded = {};             // how often, of all requests
  std::map<std::string, PlanTotals> plans;  // by model; of those that ever had an instance
  Epoch last_epoch;
  uint64_t generation = 0;
};

enum class RequestOrder { kRecent, kSlowest };

class OrchestratorCore {
 public:
  explicit OrchestratorCore(const OrchestratorConfig& config);
  ~OrchestratorCore();

  // Total: any event in any state is safe.
  std::vector<OrchestratorEffect> Handle(const OrchestratorEvent& event, TimeUs now);
  // When the next OrchestratorTick is due, kNever if none is.
  TimeUs NextDeadline() const;
  absl::Status CheckInvariants() const;
  // Without instances, routers, `gone` and `refused_peers`: costs no walk over requests or
  // instances.
  OrchestratorSnapshot Totals() const;
  OrchestratorSnapshot Snapshot(TimeUs now) const;  // costs a walk over the instances
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const;
  // Of the requests, alive or ended lately, that `request` names (Explanation::Answers); those
  // alive first, at most 16.
  std::vector<Explanation> Explain(const std::string& request, TimeUs now) const;
  // Requests that are alive or ended lately, without their plans: by submission, the latest first,
  // or by the time to their end (or to now), the longest first.
  std::vector<Explanation> Requests(RequestOrder order, size_t limit, TimeUs now) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein::scheduler
