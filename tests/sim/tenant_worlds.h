// Worlds whose requests are those of three tenants, one of which sends most of its own at one time.
// Requests of several tenants take turns by other rules than those of one (scheduler/fairness), so
// the queues meet orders there that no other kind of world has.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/scenario.h"

namespace skein::sim {

inline constexpr const char* kBurst = "burst";  // the tenant that sends most

// Two of three requests become the burst's, which come within some milliseconds, at a time that the
// seed chooses. The others are of two tenants, with weights 1 and 2. An answer's choices stay
// together. Some requests have goals.
void SendByTenants(Scenario* scenario);

// A world of one, or of several instances that compute together (MakeSpScenario), by turns.
Scenario MakeTenantsScenario(uint64_t seed);

// Nothing breaks, and there is room for all: one prefill worker, and 250 prompts of the burst,
// which it computes for a while; in the midst of them come five of another tenant, from serial
// kFirstOfQuiet on. `told`: else they are all nobody's, and all else is the same.
inline constexpr uint64_t kFirstOfQuiet = 5000;
Scenario MakeBurstScenario(uint64_t seed, bool told);

// The same room, and 60 prompts of each of two tenants, with weights 1 and 2, that all come at
// once: the ones of the first tenant before all others.
Scenario MakeBacklogScenario(uint64_t seed);

}  // namespace skein::sim
