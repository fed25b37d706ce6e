// HeldSubmissions: submissions that wait until instances have reconnected to a new orchestrator, in
// the order in which they came. Part of RouterSide. A call costs O(log held); ForgetRouter
// and Take cost as much for each that they take out.
//
// Invariant (CheckInvariants): each request is held once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/orchestrator/orchestrator_events.h"

namespace skein::scheduler::orchestrator {

class HeldSubmissions {
 public:
  void Hold(const SubmitCalled& submission);  // ignored if its request is held already
  void Forget(RequestId id);                  // ignored if it is not held
  void ForgetRouter(uint64_t router);         // all of its requests
  // The first `max` of them, or all; they are held no longer.
  std::vector<SubmitCalled> Take(size_t max);

  bool Has(RequestId id) const { return numbers_.count(id) > 0; }
  bool empty() const { return held_.empty(); }
  size_t size() const { return held_.size(); }
  absl::Status CheckInvariants() const;

 private:
  std::map<uint64_t, SubmitCalled> held_;  // by number, as they came
  std::map<RequestId, uint64_t> numbers_;  // of those held
  uint64_t last_number_ = 0;
};

}  // namespace skein::scheduler::orchestrator
