// RequestTable: the live requests, by id, by router and by submission; their counts by state and
// model; their timers. Part of OrchestratorCore.
//
// All operations are O(log n), except ForEach, which walks all requests.
//
// Invariants (CheckInvariants): each request is found by its id, router and number; the counts
// agree with the states, models and priorities; no request's timer is later than what is due.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/fairness/tenant_places.h"
#include "scheduler/orchestrator/requests/request.h"

namespace skein::scheduler::orchestrator {

class RequestTable {
 public:
  // REQUIRES an id that is not in the table. The reference holds until Erase.
  Request& Add(HeadPtr spec, TimeUs now, TimeUs deadline_us);
  void Erase(const Request& request);

  Request* Find(RequestId id);  // null: it is not alive
  const Request* Find(RequestId id) const;
  Request* Find(RequestId id, Epoch epoch);  // null, too, if it is under another epoch
  std::vector<RequestId> OfRouter(uint64_t router) const;
  const Request& Numbered(uint64_t number) const { return by_number_.at(number); }  // REQUIRES it
  Request& At(RequestId id);  // REQUIRES that it is alive
  const Request& At(RequestId id) const;

  void Enter(Request& request, State state);

  // One of the request's times was set.
  void Arm(const Request& request);
  // The requests of which something is due, in the order of their times. Each is to be looked at
  // and, if it is still alive, to be armed again.
  std::vector<RequestId> TakeDue(TimeUs now);
  TimeUs NextTimer() const { return timers_.Next(); }

  size_t size() const { return by_number_.size(); }
  int64_t CountIn(State state) const { return in_state_[static_cast<size_t>(state)]; }
  int64_t CountOf(const std::string& model) const;
  // Those of each tenant, of a model that is served.
  TenantPlaces& TenantsOf(const std::string& model) {
    return tenants_.try_emplace(model, /*places=*/0).first->second;
  }
  int64_t CountOf(const std::string& model, State state) const;
  std::optional<int32_t> HighestPriorityOf(const std::string& model) const;  // empty: it has none
  // Those of this priority or a higher one. A walk over the priorities that are there.
  int64_t CountFrom(const std::string& model, int32_t priority) const;
  uint64_t submitted() const { return submitted_; }  // ever

  // Calls visit(const Request&) for each, in the order of submission.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [number, request] : by_number_) visit(request);
  }
  // The same while visit returns true.
  template <class Visit>
  void ForEachOldest(Visit visit) const {
    for (auto it = by_number_.begin(); it != by_number_.end() && visit(it->second);) ++it;
  }
  // The same, the latest first.
  template <class Visit>
  void ForEachLatest(Visit visit) const {
    for (auto it = by_number_.rbegin(); it != by_number_.rend() && visit(it->second);) ++it;
  }

  absl::Status CheckInvariants() const;

 private:
  std::map<uint64_t, Request> by_number_;
  absl::btree_map<RequestId, Request*> by_id_;
  std::map<uint64_t, absl::btree_set<uint64_t>> of_router_;  // serials; no set is empty
  StateCounts in_state_ = {};
  std::map<std::string, StateCounts> of_model_;   // models stay when they have no request
  using Priorities = std::map<int32_t, int64_t>;  // how many requests have it; none is 0
  std::map<std::string, Priorities> priorities_;  // by model; none is empty
  std::map<std::string, TenantPlaces> tenants_;   // by model; likewise
  TimerQueue<RequestId> timers_;                  // not later than NextTimer of each
  uint64_t submitted_ = 0;
};

}  // namespace skein::scheduler::orchestrator
