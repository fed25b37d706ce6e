// RollingPlans: the requests that the rolling planner of their pool knows: those that wait for
// their first chunk, or have chunks to come. Part of OrchestratorCore, for the policy rolling.
//
// Invariant (CheckInvariants): a request's rolling_key and the planners name each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/orchestrator/requests/request_table.h"
#include "scheduler/plan/rolling/rolling.h"

namespace skein::scheduler::orchestrator {

class RollingPlans {
 public:
  using Pool = PrefillPools::Pool;

  // REQUIRES a pool with a rolling planner, in all of these.
  void Add(Request* request, Pool* pool, TimeUs now);
  // No more chunks; the one that runs has ended. Ignored if the request is unknown.
  void Remove(Request* request, Pool* pool, TimeUs now);
  // The running chunk has ended; the request is forgotten if that was its last chunk.
  void EndChunk(Request* request, Pool* pool, TimeUs now);

  struct Start {
    RequestId id;
    ChunkPlan chunk;  // instances by slot; times from the start of the clock
  };
  // The chunks of the model's requests that start now. Looks at the pool's instances, and at as
  // many requests as RollingOptions::lookahead says, or at the plans that are committed
  // (rolling.h).
  std::vector<Start> Decide(const std::string& model, Pool* pool, TimeUs now);
  // Of those that wait for their first chunk. Looks at all of the model.
  std::vector<RequestId> QueuedOf(const std::string& model, const RequestTable& requests) const;

  absl::Status CheckInvariants(const RequestTable& requests, const PrefillPools& pools) const;

 private:
  void Forget(Request* request);

  std::map<std::string, std::map<int64_t, RequestId>> by_key_;  // by model; none is empty
  int64_t last_key_ = 0;
};

}  // namespace skein::scheduler::orchestrator
