// Successors: plans that were accepted while an older epoch of their request is still here, because
// a step or a handoff still uses its blocks. They are taken up when it has left. Part of
// PrefillCore. Each call costs the logarithm of the number of requests.
//
// Invariant (CheckInvariants): of each request one epoch waits, with all its Assigns in the order
// in which they came.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"

namespace skein::scheduler {

class Successors {
 public:
  struct Plan {
    std::vector<AssignRequest> assigns;
    bool all_have_it = false;  // a Start came after the last of them
  };

  std::optional<Epoch> EpochOf(RequestId id) const {
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return std::nullopt;
    return it->second.assigns.front().epoch;
  }
  // REQUIRES: no other epoch of the request waits.
  void Add(const AssignRequest& assign) {
    Plan& plan = waiting_[assign.spec->id];
    plan.assigns.push_back(assign);
    plan.all_have_it = false;
  }
  // It names the plan's decode instance. Unknown plans are fine.
  void Start(const StartRequest& start) {
    if (EpochOf(start.id) != start.epoch) return;
    Plan& plan = waiting_.at(start.id);
    plan.assigns.front().placed = start.placed;
    plan.all_have_it = true;
  }
  // The plan that waits, its Assigns in order; without any: none does. It waits no more.
  Plan Take(RequestId id) {
    auto taken = waiting_.extract(id);
    return taken.empty() ? Plan() : std::move(taken.mapped());
  }

  bool empty() const { return waiting_.empty(); }
  const std::map<RequestId, Plan>& all() const { return waiting_; }  // by request

  absl::Status CheckInvariants() const {
    for (const auto& [id, plan] : waiting_) {
      const std::vector<AssignRequest>& assigns = plan.assigns;
      if (assigns.empty()) {
        return absl::InternalError(absl::StrCat("Successors: ", ToString(id), " has no Assign"));
      }
      for (const AssignRequest& assign : assigns) {
        if (assign.spec->id == id && assign.epoch == assigns.front().epoch) continue;
        return absl::InternalError(
            absl::StrCat("Successors: ", ToString(id), " waits with Assigns of two plans"));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::map<RequestId, Plan> waiting_;
};

}  // namespace skein::scheduler
