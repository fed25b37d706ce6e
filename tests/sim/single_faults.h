// Worlds of streams of seconds under the product's timeouts (MakeLongScenario) in which exactly one
// thing breaks, once, and the rest has room to spare. No client may get an error, but those of a
// router that died, and none may wait longer than the configured limits say.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tests/sim/scenario.h"

namespace skein::sim {

// What breaks, and whose.
enum class Party { kPrefill, kDecode, kOrchestrator, kRouter };
struct SingleFault {
  FaultKind kind = FaultKind::kCrash;
  Party party = Party::kPrefill;
  // Of a cut: what goes from `party` to `to`, and back, too.
  Party to = Party::kOrchestrator;
  bool both_ways = false;
};

// Each kind of fault of each kind of process. The death of a router ends what its own clients
// asked.
std::span<const SingleFault> SingleFaults();
std::string NameOf(const SingleFault& fault);  // such as "crash_of_decode"

// The world of a seed in which it strikes, while requests are under way; and the same one without.
Scenario MakeSingleFaultScenario(const SingleFault& fault, uint64_t seed);
Scenario MakeUnbrokenScenario(uint64_t seed);
// Of the case seed % SingleFaults().size(), in the world of 1 + seed / SingleFaults().size().
Scenario MakeAnySingleFaultScenario(uint64_t seed);

// How long the fault may go unnoticed by those who can go on without, by the limits that are
// configured in this world; or, where nobody can, how long it lasts and the reconnection takes.
TimeUs NoticedWithinUs(const SingleFault& fault, const Scenario& scenario);

// The longest that each client waited for its next token, by serial (Outcome::longest_waits).
using Waits = std::map<uint64_t, TimeUs>;
// The longest that any client may wait in the world of the fault: until it is noticed; then, as
// without the fault, for its own turn; and while the requests of all clients that waited longer
// than without are computed anew, one after the other.
TimeUs LongestWaitUs(const SingleFault& fault, const Scenario& scenario, const Waits& without,
                     const Waits& with);

}  // namespace skein::sim
