// Evidence: which routers hear which decode instances. A router says so in its hello and its
// reports. Part of Routers.
//
// Invariants (CheckInvariants): both tables say the same, and neither has an empty set.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

class Evidence {
 public:
  // All that the router hears, or what has changed.
  void Replace(uint64_t router, const std::vector<InstanceId>& heard);
  void Change(uint64_t router, const std::vector<InstanceId>& heard,
              const std::vector<InstanceId>& not_heard);
  void ForgetRouter(uint64_t router);
  void ForgetInstance(InstanceId instance);

  int64_t HeardBy(InstanceId instance) const;  // routers
  // The routers that hear an instance.
  const std::map<uint64_t, std::set<InstanceId>>& all() const { return hears_; }

  absl::Status CheckInvariants() const;

 private:
  void Add(uint64_t router, InstanceId instance);
  void Remove(uint64_t router, InstanceId instance);

  std::map<uint64_t, std::set<InstanceId>> hears_;
  std::map<InstanceId, std::set<uint64_t>> heard_by_;
};

}  // namespace skein::scheduler
