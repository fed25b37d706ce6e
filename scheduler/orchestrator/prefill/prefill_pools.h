// PrefillPools: the prefill instances of each model as its planner sees them: the slots it numbers
// them by, and when each of them will have ended the chunks that are planned on it. Part of
// OrchestratorCore; only with planning.
//
// When instances came or went, their own pool is laid out anew, and no other: as soon as something
// is planned there next. That looks at the pool's instances and at the chunks that are planned on
// them; a pool's first layout looks at all requests, for those that were planned before it.
//
// Cost. The queue times of a pool, and which are the shortest, are computed from arrays in one walk
// over the slots; of the instances themselves, only those are looked at that changed since the last
// time.
//
// Invariants (CheckInvariants): the timelines have exactly the chunks that the requests' plans have
// and that have not ended; `takes` is true to the instances, but for changes that are noted.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"
#include "scheduler/orchestrator/prefill/timeline.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"

namespace skein::scheduler::orchestrator {

// What a pool can do now.
struct PoolQueue {
  // Explanations list this many of the instances that are free first: a pool may have a thousand.
  static constexpr size_t kSoonest = 16;

  std::vector<double> queue_s;  // by slot; kAbsentQueueS where nothing may be planned
  int usable = 0;
  // Queue times and slots of the kSoonest usable ones that are free first, by slot.
  std::vector<std::pair<double, size_t>> soonest;
};

class PrefillPools {
 public:
  struct Pool {
    PoolPlanner planner;
    uint64_t version = 0;                    // of the registry's pool, when the layout was made
    std::vector<const Instance*> instances;  // by slot; null: none
    std::map<InstanceId, int> slot_of;
    std::vector<char> takes;   // by slot: Instance::TakesAssigns, as of the last QueueOf
    int64_t least_blocks = 0;  // of the instance with the fewest
    Timeline timeline = Timeline(0);

    InstanceId IdAt(size_t slot) const { return planner.layout().slots[slot]; }
  };

  // `planning` is null when nothing is planned; then there is no pool. The registry outlives this.
  PrefillPools(std::shared_ptr<const PlanningConfig> planning, Registry* registry)
      : planning_(std::move(planning)), registry_(*registry) {}

  bool plans() const { return planning_ != nullptr; }
  const PlanningConfig& planning() const { return *planning_; }  // REQUIRES plans()
  // For one model, or for all ("ReplacePlanningTables"). REQUIRES CheckPlanning with them.
  void ReplaceTables(const PlanningTables& tables, const std::string& model);
  // In force for a model, whether it has a pool or not. REQUIRES plans().
  const PlanningTables& TablesOf(const std::string& model) const;

  // Laid out over the instances that are registered now, null if none of them can be planned with.
  // The chunks of `requests` are moved along when instances came or went.
  Pool* Of(const std::string& model, const RequestTable& requests);
  // As it was laid out last; null if it never was.
  Pool* Known(const std::string& model);
  // REQUIRES: `pool` is that of Of(model) in this event, and no instance came or went since.
  PoolQueue QueueOf(const std::string& model, Pool* pool, const std::set<InstanceId>& tried,
                    TimeUs now);

  // The plan of a request. The timeline changes only where its model has a pool.
  //
  // Decides in which shape the chunk runs, unless its submitter asked for one, and estimates it:
  // sets its tp and estimated_us. Without a pool it stays as it is. REQUIRES that its members are
  // known, by rank.
  void AddChunk(Request* request, size_t chunk, TimeUs now);
  // By how much its shape is slower than the one that the planner took its instances to run it in:
  // it may have put them on several nodes.
  double SlowerSeconds(const Request& request, size_t chunk) const;
  void BeginChunk(Request* request, size_t chunk, TimeUs since_us);
  void EndChunk(Request* request, size_t chunk, TimeUs now);
  void DropPlan(const Request& request);
  // The first chunk of it that has not ended may begin from now on, as soon as nothing is in front
  // of it (Request::MayHaveBegun).
  void MayBegin(const Request& request);
  // The requests of which nothing is in front any more (Timeline::TakeReady).
  std::vector<RequestId> TakeReady(const std::string& model);
  // The models of which a chunk ended, a plan was dropped or MayBegin was called since the last
  // call: some of their chunks may be ready.
  std::set<std::string> TakeMoved() { return std::exchange(moved_, {}); }

  // By model; the layout is that of the last Of().
  std::map<std::string, Pool>& all() { return pools_; }
  const std::map<std::string, Pool>& all() const { return pools_; }

  absl::Status CheckInvariants(const RequestTable& requests) const;

 private:
  void LayOut(Pool* pool, const std::string& model, const RequestTable& requests);
  static PoolQueue UsableQueues(const Pool& pool, TimeUs now);
  // Of those that its timeline had, with the slots of now.
  std::vector<TimelineChunk> ChunksMoved(const Pool& pool, const RequestTable& requests) const;
  int ChooseTp(const Pool& pool, const Request& request, const Chunk& chunk) const;
  TimelineChunk EstimatedChunk(const Pool& pool, const Request& request, size_t chunk) const;
  std::vector<TimelineChunk> ChunksToCome(const Pool& pool, const std::string& model,
                                          const RequestTable& requests) const;

  std::shared_ptr<const PlanningConfig> planning_;
  std::map<std::string, PlanningTables> own_tables_;  // by model; the others have planning_'s
  Registry& registry_;
  std::map<std::string, Pool> pools_;
  std::set<std::string> moved_;
};

}  // namespace skein::scheduler::orchestrator
