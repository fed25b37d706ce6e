// What decode workers and their groups hold of one request, and what an error says of a request
// that is longer (orchestrator::LongRequests).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

// The tokens, prompt and output, of one request that a bound group of so many decode workers holds;
// of one: what a worker holds alone.
int64_t TokensOfGroup(const Scenario& scenario, int size);

// "prompt + max_tokens: T tokens fit no decode instance; the largest takes L, their widest group,
// bound(K), takes W": of an error.
struct LongLimits {
  int64_t tokens = 0;
  int64_t largest = 0;
  int widest = 1;  // 1: no group is named
  int64_t widest_tokens = 0;
  std::string more;  // what follows
};
std::optional<LongLimits> LongLimitsOf(const absl::Status& status);

// Whether a client may be told this: its request fits no instance alone, the error names its length
// and the limits of this world, and says one of these:
//   UNAVAILABLE       it lost its group, or no group can be bound for it now
//   INVALID_ARGUMENT  it is longer than the widest group that the orchestrator knows, wants what no
//                     group computes, or only operators keep a group from it
bool LacksGroup(const Scenario& scenario, const ClientPlan& plan, const absl::Status& status);

// Whether operators can keep a group from being bound: by pins, or because only they bind.
inline bool OperatorsMayKeepGroups(const Scenario& scenario) {
  return !scenario.formations->automatic || !scenario.orders.empty();
}

}  // namespace skein::sim
