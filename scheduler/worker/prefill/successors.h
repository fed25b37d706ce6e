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
  std::optional<Epoch> EpochOf(RequestId id) const {
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return std::nullopt;
    return it->second.front().epoch;
  }
  // REQUIRES: no other epoch of the request waits.
  void Add(const AssignRequest& assign) { waiting_[assign.spec->id].push_back(assign); }
  // The plan's decode instance. Unknown plans are fine.
  void Place(RequestId id, Epoch epoch, const Placed& placed) {
    if (EpochOf(id) == epoch) waiting_.at(id).front().placed = placed;
  }
  // The Assigns of the plan that waits, in order; empty: none does. It waits no more.
  std::vector<AssignRequest> Take(RequestId id) {
    auto taken = waiting_.extract(id);
    return taken.empty() ? std::vector<AssignRequest>() : std::move(taken.mapped());
  }

  bool empty() const { return waiting_.empty(); }
  // By request, each with its Assigns.
  const std::map<RequestId, std::vector<AssignRequest>>& all() const { return waiting_; }

  absl::Status CheckInvariants() const {
    for (const auto& [id, assigns] : waiting_) {
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
  std::map<RequestId, std::vector<AssignRequest>> waiting_;
};

}  // namespace skein::scheduler
