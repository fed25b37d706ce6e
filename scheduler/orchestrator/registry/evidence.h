// Evidence: which routers hear which decode instances. A router says so in its hello and its
// reports. Part of Routers.
//
// Instances are named by their processes, because routers name them so: also those that have not
// registered here yet, or that are no more. What a router has said holds until it says otherwise.
//
// Invariants (CheckInvariants): both tables say the same, and neither has an empty set; no router
// hears more than kHeardMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

class Evidence {
 public:
  static constexpr size_t kHeardMax = size_t{1} << 16;  // by one router; more are ignored

  // All that the router hears, or what has changed.
  void Replace(uint64_t router, const std::vector<Incarnation>& heard);
  void Change(uint64_t router, const std::vector<Incarnation>& heard,
              const std::vector<Incarnation>& not_heard);
  void ForgetRouter(uint64_t router);

  int64_t HeardBy(Incarnation instance) const;  // routers
  // The routers that hear an instance.
  const std::map<uint64_t, std::set<Incarnation>>& all() const { return hears_; }

  absl::Status CheckInvariants() const;

 private:
  void Add(uint64_t router, Incarnation instance);
  void Remove(uint64_t router, Incarnation instance);

  std::map<uint64_t, std::set<Incarnation>> hears_;
  std::map<Incarnation, std::set<uint64_t>> heard_by_;
};

}  // namespace skein::scheduler
