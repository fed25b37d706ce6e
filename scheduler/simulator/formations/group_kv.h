// GroupKv: the KV of the members of a simulated group, in bytes. A request takes what its prompt
// and its whole output need when it enters a batch, evenly over the members that compute it, and
// gives it back when it ends or is computed anew elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "scheduler/orchestrator/groups/formation.h"
#include "scheduler/simulator/formations/phased_load.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

class GroupKv {
 public:
  // `copies`: of the weights, in all; the members share what is left evenly. `requests` outlives
  // this.
  GroupKv(const StepProfile& profile, int32_t members, int64_t copies,
          const std::vector<GroupRequest>* requests);

  // Whether `instances` empty ones together hold it.
  bool Fits(size_t request, int32_t instances) const;
  // Takes its KV at the members of the subset; false: one of them has too little left, and nothing
  // is taken. REQUIRES: it holds none.
  bool Reserve(const orchestrator::Subset& subset, size_t request);
  void Free(size_t request);  // one that holds none is fine
  double held_share() const;  // of all, now
  bool Holds(size_t request) const { return holds_.contains(request); }

 private:
  double BytesOf(size_t request) const;

  const std::vector<GroupRequest>* requests_;
  double token_bytes_ = 0;
  double capacity_bytes_ = 0;  // of a member
  std::vector<double> held_bytes_;
  std::map<size_t, orchestrator::Subset> holds_;
};

}  // namespace skein::scheduler
