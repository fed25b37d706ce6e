// What the tests of every kind of world change in a scenario.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// Of a scenario without faults: patient clients that can all be served, and room to spare. Nothing
// excuses a client's error.
void GiveRoom(Scenario* scenario);
// Likewise, and exactly one fault, of a prefill worker or of the orchestrator.
void LeaveNoExcuse(Scenario* scenario);
// Likewise, but what breaks are the streams between the orchestrator and the others, again and
// again, and it restarts at once in between: both sides compare their state, and nothing is lost.
void BreakLinks(Scenario* scenario);
// Likewise, but what breaks is the network between the orchestrator and one decode worker after the
// other, for up to several leases of an instance each. Routers and prefill workers reach them.
void CutDecodeFromOrchestrator(Scenario* scenario);
// Likewise, but what happens is that decode workers get a stop signal, one after the other, and
// come back before the next one goes: a rolling restart.
void RestartDecode(Scenario* scenario);
// Likewise, but what breaks are the streams between the orchestrator and the others: half of them
// stay half-open at one end; or one direction after the other is cut, for up to two leases.
void HalfOpenStreams(Scenario* scenario);
// As LeaveNoExcuse, and now and then tokens are long under way.
void SlowTokens(Scenario* scenario);
// Of a scenario without faults: decode workers die one after the other, and come back as another
// build, whose blocks have another layout. Nothing may be handed to it.
void LetAnotherBuildCome(Scenario* scenario);
// Of a scenario with planning: its prefill workers are on one node, and each chunk runs with `tp`,
// or with as much of it as its instances allow.
void ShareDenseParts(int tp, Scenario* scenario);
// Instances hold few requests, and the router admits more than all of them together can hold.
void LimitRequests(Scenario* scenario);
// Of a scenario without faults, as LeaveNoExcuse, but what happens is that the orchestrator's clock
// jumps by seconds, many leases of an instance.
void JumpClocks(Scenario* scenario);
// Lets so many of the clients that can be served fail engines, and all of them be patient.
void LetClientsFailEngines(int64_t clients, Scenario* scenario);
// Of a scenario with formations: decode workers can share their weights, and half of the orders to
// bind are to share. Where the orchestrator decides, lines of offline jobs wait.
void ShareWeights(Scenario* scenario);
// An operator drains one worker after the other, and once the router, and undoes each order after a
// while.
void OrderDrains(Scenario* scenario);

}  // namespace skein::sim
