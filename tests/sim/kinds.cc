#include "tests/sim/kinds.h"

#include "tests/sim/dense_worlds.h"
#include "tests/sim/formation_worlds.h"
#include "tests/sim/gray_worlds.h"
#include "tests/sim/pointed_worlds.h"
#include "tests/sim/several_orchestrators.h"
#include "tests/sim/several_routers.h"
#include "tests/sim/silent_worlds.h"
#include "tests/sim/single_faults.h"
#include "tests/sim/small_pools.h"
#include "tests/sim/tenant_worlds.h"
#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

constexpr uint64_t kFaultlessEvery = 5;    // of MakeScenario
constexpr uint64_t kSpFaultlessEvery = 4;  // of MakeSpScenario, and of MakeFormationScenario

template <void (*change)(Scenario*)>
Scenario Changed(uint64_t seed) {
  Scenario scenario = MakeScenario(kFaultlessEvery * seed);
  change(&scenario);
  return scenario;
}

template <void (*change)(Scenario*)>
Scenario SpChanged(uint64_t seed) {
  Scenario scenario = MakeSpScenario(kSpFaultlessEvery * seed);
  change(&scenario);
  return scenario;
}

template <void (*change)(Scenario*)>
Scenario FormationsChanged(uint64_t seed) {
  Scenario scenario = MakeFormationScenario(kSpFaultlessEvery * seed);
  change(&scenario);
  return scenario;
}

template <void (*change)(Scenario*)>
Scenario LongRequestsChanged(uint64_t seed) {
  Scenario scenario = MakeLongRequestsScenario(kSpFaultlessEvery * seed);
  change(&scenario);
  return scenario;
}

Scenario MakeSmallPools(uint64_t seed) {
  Scenario scenario = MakeScenario(seed);
  ShrinkPools(&scenario);
  return scenario;
}

Scenario MakeFormationsInSmallPools(uint64_t seed) {
  Scenario scenario = MakeFormationScenario(seed);
  ShrinkPools(&scenario);
  return scenario;
}

constexpr Kind kKinds[] = {{"alone", MakeScenario},
                           {"together", MakeSpScenario},
                           {"no_excuse", Changed<LeaveNoExcuse>},
                           {"together_no_excuse", SpChanged<LeaveNoExcuse>},
                           {"resyncs", Changed<BreakLinks>},
                           {"half_open", Changed<HalfOpenStreams>},
                           {"together_half_open", SpChanged<HalfOpenStreams>},
                           {"slow_writers", MakeSlowWritersScenario},
                           {"slow_tokens", Changed<SlowTokens>},
                           {"other_build", Changed<LetAnotherBuildCome>},
                           {"small_pools", MakeSmallPools},
                           {"no_room", MakeNoRoomScenario},
                           {"long", MakeLongScenario},
                           {"several_routers", MakeSeveralRoutersScenario},
                           {"one_router", MakeOneRouterScenario},
                           {"several_orchestrators", MakeSeveralOrchestratorsScenario},
                           {"one_leader", MakeOneLeaderScenario},
                           {"deaf_leader", MakeDeafLeaderScenario},
                           {"resigning_leaders", MakeResigningScenario},
                           {"single_faults", MakeAnySingleFaultScenario},
                           {"silent_streams", MakeSilentScenario},
                           {"dense", MakeDenseScenario},
                           {"gray", MakeGrayScenario},
                           {"unread", MakeUnreadScenario},
                           {"tenants", MakeTenantsScenario},
                           {"formations", MakeFormationScenario},
                           {"formations_no_excuse", FormationsChanged<LeaveNoExcuse>},
                           {"formations_small_pools", MakeFormationsInSmallPools},
                           {"formations_long", MakeLongRequestsScenario},
                           {"formations_long_no_excuse", LongRequestsChanged<LeaveNoExcuse>},
                           {"formations_long_resyncs", LongRequestsChanged<BreakLinks>},
                           {"formations_half_open", FormationsChanged<HalfOpenStreams>},
                           {"formations_several", MakeFormationsOfSeveralScenario},
                           {"formations_shared", FormationsChanged<ShareWeights>},
                           {"formations_points", MakePointedScenario}};

}  // namespace

std::span<const Kind> Kinds() { return kKinds; }

}  // namespace skein::sim
