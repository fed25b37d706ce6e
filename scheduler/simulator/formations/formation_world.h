// FormationWorld: a simulated group as group control sees it (formation_driver.h). It carries out
// what FormationSwitch orders, as workers do, and tells how far it is.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation.h"
#include "scheduler/orchestrator/groups/formation_policy.h"

namespace skein::scheduler {

class FormationWorld {
 public:
  virtual ~FormationWorld() = default;

  // From here on, of a live epoch whose first member is `first`.
  virtual void SetReason(int32_t first, orchestrator::BindReason reason) = 0;
  virtual void Prepare(int32_t member, const PrepareFormation& order) = 0;
  virtual void Commit(uint64_t epoch, const orchestrator::Subset& subset, TimeUs now) = 0;
  virtual void End(int32_t member, uint64_t epoch, Switch how, TimeUs now) = 0;
  // What members have told since the last call, in order.
  virtual std::vector<std::pair<int32_t, FormationTold>> TakeTold() = 0;
  // For the policy; without sizes, bound and since_us.
  virtual orchestrator::GroupLoad Load() const = 0;
};

}  // namespace skein::scheduler
