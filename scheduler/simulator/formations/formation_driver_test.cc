#include "scheduler/simulator/formations/formation_driver.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/simulator/formations/formation_world.h"

namespace skein::scheduler {
namespace {

// Four members that do nothing but note what they are ordered.
class NotingWorld : public FormationWorld {
 public:
  void SetReason(int32_t, orchestrator::BindReason) override {}
  void Prepare(int32_t, const PrepareFormation& order) override { orders.push_back(order); }
  void Commit(uint64_t, const orchestrator::Subset&, TimeUs) override {}
  void End(int32_t, uint64_t, Switch, TimeUs) override {}
  std::vector<std::pair<int32_t, FormationTold>> TakeTold() override { return {}; }
  orchestrator::GroupLoad Load() const override { return load; }

  orchestrator::GroupLoad load;
  std::vector<PrepareFormation> orders;
};

// The first order of a group that is busy and has an urgent request, or that is quiet.
PrepareFormation FirstOrder(bool urgent, std::optional<OwnSequences> own) {
  NotingWorld world;
  world.load.members.resize(4);
  if (urgent) {
    for (auto& member : world.load.members) member.running_sequences = 100;
    world.load.highest_priority = 1;
  }
  DriverOptions options;
  options.own = own;
  FormationDriver driver({{.size = 1, .tokens_max = 1000},
                          {.size = 2, .tokens_max = 2000, .gain = 1.5},
                          {.size = 4, .tokens_max = 4000, .gain = 2}},
                         4, options, &world);
  driver.Advance(0);
  driver.Advance(options.message_us);
  EXPECT_FALSE(world.orders.empty());
  return world.orders.empty() ? PrepareFormation{} : world.orders.front();
}

TEST(FormationDriver, OwnSequencesFareByTheReasonOfTheBind) {
  const PrepareFormation urgent = FirstOrder(true, std::nullopt);
  EXPECT_EQ(urgent.size, 2);
  EXPECT_EQ(urgent.own, OwnSequences::kSoftPreempt);
  const PrepareFormation quiet = FirstOrder(false, std::nullopt);
  EXPECT_EQ(quiet.size, 4);
  EXPECT_EQ(quiet.own, OwnSequences::kShare);
}

TEST(FormationDriver, OneWayForAllBindsIsThatOfEach) {
  for (const OwnSequences own : {OwnSequences::kShare, OwnSequences::kSequential,
                                 OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
    EXPECT_EQ(FirstOrder(true, own).own, own);
    EXPECT_EQ(FirstOrder(false, own).own, own);
  }
}

}  // namespace
}  // namespace skein::scheduler
