#include "services/orchestrator/planning_options.h"

#include <fstream>

#include "gtest/gtest.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

std::string Why(const OrchestratorOptions& options) {
  return std::string(LoadPlanning(options).status().message());
}

TEST(PlanningOptions, WithoutAProfileEveryPlanIsPlain) {
  const auto planning = LoadPlanning({});
  ASSERT_TRUE(planning.ok()) << planning.status();
  EXPECT_EQ(*planning, nullptr);
}

TEST(PlanningOptions, AProfileAndAPolicyMakeAConfiguration) {
  OrchestratorOptions options;
  options.profile = "llama3-8b-a100";
  options.policy = "fixed4";
  options.node_size = 4;
  options.improvement_rate = "0.1";
  const auto planning = LoadPlanning(options);
  ASSERT_TRUE(planning.ok()) << planning.status();
  EXPECT_EQ((*planning)->policy.sp, 4);
  EXPECT_EQ((*planning)->node_size, 4);
  EXPECT_EQ((*planning)->improvement_rates.RateAt(7), 0.1);
  options.improvement_rate = "auto";
  EXPECT_EQ((*LoadPlanning(options))->improvement_rates.RateAt(7), 0.25);
}

// What the simulator tuned the live planner is tuned with.
TEST(PlanningOptions, RollingIsTunedAsTheProfileSays) {
  Profile profile = *LoadProfile("llama3-8b-a100");
  scheduler::RollingTuning calm{.price = 0.4};
  scheduler::RollingTuning busy{.price = 0.7};
  busy.commit = {scheduler::CommitMode::Kind::kTetris, 0.3, 0};
  profile.rolling = *scheduler::RollingTable::Make({{1, calm}, {2, busy}});
  OrchestratorOptions options;
  options.policy = "rolling";
  options.profile = ::testing::TempDir() + "/tuned.json";
  std::ofstream(options.profile) << ProfileJson(profile);
  const auto planning = LoadPlanning(options);
  ASSERT_TRUE(planning.ok()) << planning.status();
  EXPECT_EQ((*planning)->rolling.At(0), calm);
  EXPECT_EQ((*planning)->rolling.At(9), busy);
  busy.commit = {scheduler::CommitMode::Kind::kFixed, 0, 5};
  profile.rolling = scheduler::RollingTable::Constant(busy);
  std::ofstream(options.profile) << ProfileJson(profile);
  EXPECT_EQ(Why(options), "--profile: rolling: it has no SP size 5");
}

TEST(PlanningOptions, AWrongValueIsNamedWithItsFlag) {
  OrchestratorOptions options;
  options.policy = "fastest";
  EXPECT_NE(Why(options).find("--policy: 'fastest' is not"), std::string::npos) << Why(options);
  options.policy = "rolling";
  EXPECT_NE(Why(options).find("--profile"), std::string::npos) << Why(options);
  options.profile = "nowhere.json";
  EXPECT_EQ(Why(options).find("--profile: "), 0u) << Why(options);
  options.profile = "llama3-8b-a100";
  options.policy = "fixed5";
  EXPECT_EQ(Why(options), "--policy: 'fixed5': the profile has no SP size 5");
  options.policy = "tetris";
  options.improvement_rate = "1";
  EXPECT_EQ(Why(options).find("--improvement-rate: '1'"), 0u) << Why(options);
}

}  // namespace
}  // namespace skein::services
