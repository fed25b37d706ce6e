// Worlds with requests of several tenants (tenant_worlds.h): nothing is lost, every answer is
// right, a burst of one tenant keeps no other one waiting, and two that wait all the time get the
// same by weight. A failing seed is printed; tests/sim:search --kind=tenants replays those of the
// first two tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/request.h"
#include "tests/sim/seed_main.h"
#include "tests/sim/small_pools.h"
#include "tests/sim/tenant_worlds.h"
#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 4;
constexpr uint64_t kSeeds = 10;

class TenantsSimTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static uint64_t First() { return seed_flags.first_seed + GetParam() * kSeeds; }
};

TEST_P(TenantsSimTest, KeepTheInvariantsAndHeal) {
  const Outcome sum = RunSlice(GetParam(), kSeeds, MakeTenantsScenario);
  EXPECT_GT(sum.faults_met, 0);
}

// Instances hold few requests and little KV: tenants wait for one another everywhere.
TEST_P(TenantsSimTest, OverloadEndsNothingThatWasAccepted) {
  Outcome sum;
  for (uint64_t seed = First(); seed < First() + kSeeds; ++seed) {
    Scenario scenario = MakeTenantsScenario(seed);
    seed % 3 == 0 ? ShrinkPools(&scenario) : LimitRequests(&scenario);
    const Outcome outcome = RunWorld(std::move(scenario));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed << " with little room";
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.refused, 0);
  EXPECT_GT(sum.finished, 0);
}

// The longest wait of a request for its first token or the end, of those from this serial on.
TimeUs LongestFrom(uint64_t serial, const Outcome& outcome) {
  TimeUs longest_us = 0;
  const auto& waits = outcome.longest_waits;
  for (auto it = waits.lower_bound(serial); it != waits.end(); ++it) {
    longest_us = std::max(longest_us, it->second);
  }
  return longest_us;
}

TEST_P(TenantsSimTest, ABurstKeepsNoOtherTenantWaiting) {
  for (uint64_t seed = First(); seed < First() + 2; ++seed) {
    const Outcome told = RunWorld(MakeBurstScenario(seed, /*told=*/true));
    const Outcome untold = RunWorld(MakeBurstScenario(seed, /*told=*/false));
    for (const Outcome& outcome : {told, untold}) {
      EXPECT_EQ(outcome.violation, "") << "seed " << seed;
      EXPECT_EQ(outcome.finished, outcome.requests) << "seed " << seed << ": one starved";
    }
    EXPECT_LT(3 * LongestFrom(kFirstOfQuiet, told), LongestFrom(kFirstOfQuiet, untold))
        << "seed " << seed;
  }
}

// Neither has credit, since both come at once: at each time what they were given, by weight,
// differs by twice the largest charge, a prompt, and by what is on its way.
TEST_P(TenantsSimTest, TwoTenantsThatWaitAllTheTimeGetTheSameByWeight) {
  for (uint64_t seed = First(); seed < First() + 2; ++seed) {
    const Scenario scenario = MakeBacklogScenario(seed);
    const Outcome outcome = RunWorld(scenario);
    EXPECT_EQ(outcome.violation, "") << "seed " << seed;
    std::vector<std::pair<TimeUs, const scheduler::RequestSpec*>> served;
    std::map<std::string, int64_t> left;
    for (const ClientPlan& client : scenario.clients) {
      served.emplace_back(outcome.longest_waits.at(client.spec->id.serial), client.spec.get());
      ++left[client.spec->tenant];
    }
    std::sort(served.begin(), served.end());
    std::map<std::string, double> given;
    double most = 0;
    for (const auto& [waited_us, spec] : served) {
      if (--left[spec->tenant] == 0) break;  // from here on only one waits
      given[spec->tenant] +=
          static_cast<double>(spec->prompt.size()) / static_cast<double>(spec->tenant_weight);
      most = std::max(most, std::abs(given["first"] - given["second"]));
    }
    EXPECT_LE(most, 6 * 30) << "seed " << seed;
    EXPECT_GT(given["first"], 300) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Slices, TenantsSimTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeTenantsScenario);
}
