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

// It is for the decode side; skeinctl profile writes such a one where prompts did not fit.
TEST(PlanningOptions, WithAProfileWithoutLatenciesEveryPlanIsPlain) {
  Profile profile;
  profile.formations.emplace().gains[2] = 1.5;
  OrchestratorOptions options;
  options.profile = ::testing::TempDir() + "/formations.json";
  std::ofstream(options.profile) << ProfileJson(profile);
  const auto planning = LoadPlanning(options);
  ASSERT_TRUE(planning.ok()) << planning.status();
  EXPECT_EQ(*planning, nullptr);
  options.policy = "fixed4";
  EXPECT_EQ(Why(options),
            "--policy, --improvement-rate and --prefill-tp: they need a latency profile, "
            "--profile; '" +
                options.profile + "' has none: sp is missing");
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
  EXPECT_EQ((*planning)->tables.improvement_rates.RateAt(7), 0.1);
  options.improvement_rate = "auto";
  EXPECT_EQ((*LoadPlanning(options))->tables.improvement_rates.RateAt(7), 0.25);
}

TEST(PlanningOptions, ShapesAreThoseOfTheProfileOrThePinnedOne) {
  Profile profile = *LoadProfile("llama3-8b-a100");
  const scheduler::SpCoefficients short_chunks{0.01, 1e-3, 0, 0};
  profile.latency = *scheduler::LatencyModel::Make({{1, {0, 1e-4, 0, 0}}, {4, {0.1, 1e-4, 0, 0}}},
                                                   {{4, 2, short_chunks}, {4, 4, short_chunks}});
  OrchestratorOptions options;
  options.profile = ::testing::TempDir() + "/tensor.json";
  std::ofstream(options.profile) << ProfileJson(profile);
  const auto tp = [&options](int64_t tokens) {
    return (*LoadPlanning(options))->latency.ChooseTp(4, 0, tokens, 4);
  };
  EXPECT_EQ(tp(10), 2);
  EXPECT_EQ(tp(10'000), 1);
  options.prefill_tp = "4";
  EXPECT_EQ(tp(10'000), 4);
  options.node_size = 2;
  EXPECT_EQ(tp(10'000), 2) << "a node has no more";
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
  EXPECT_EQ((*planning)->tables.rolling.At(0), calm);
  EXPECT_EQ((*planning)->tables.rolling.At(9), busy);
  busy.commit = {scheduler::CommitMode::Kind::kFixed, 0, 5};
  profile.rolling = scheduler::RollingTable::Constant(busy);
  std::ofstream(options.profile) << ProfileJson(profile);
  EXPECT_EQ(Why(options), "--profile: rolling: it has no SP size 5");
}

// SIGHUP: both tables, or none of them and the file and the field that are wrong.
TEST(PlanningOptions, BothTablesAreReadAnew) {
  Profile profile = *LoadProfile("llama3-8b-a100");
  OrchestratorOptions options;
  options.policy = "rolling";
  options.profile = ::testing::TempDir() + "/anew.json";
  const auto write = [&](const std::string& text) { std::ofstream(options.profile) << text; };
  write(ProfileJson(profile));
  const auto running = LoadPlanning(options);
  ASSERT_TRUE(running.ok()) << running.status();
  profile.improvement_rates = scheduler::ImprovementRateTable::Constant(0.7);
  scheduler::RollingTuning tuning{.price = 0.4};
  profile.rolling = scheduler::RollingTable::Constant(tuning);
  write(ProfileJson(profile));
  const auto tables = ReloadTables(options, **running);
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_EQ(tables->improvement_rates.RateAt(1), 0.7);
  EXPECT_EQ(tables->rolling.At(1), tuning);

  const auto why = [&] { return std::string(ReloadTables(options, **running).status().message()); };
  write(R"({"sp": {"1": {"a_s": 0.1, "b_s_per_token": 1e-5, "c_s_per_token2": 0,
                         "d_s_per_token2": 0}}, "rolling": [{"requests_per_s": 1}]})");
  EXPECT_NE(why().find(options.profile), std::string::npos) << why();
  EXPECT_NE(why().find("rolling[0].price is missing"), std::string::npos) << why();
  // Its own sizes have 32; those that the cluster was started with do not.
  tuning.commit = {scheduler::CommitMode::Kind::kFixed, 0, 32};
  write(R"({"sp": {"1": {"a_s": 0.1, "b_s_per_token": 1e-5, "c_s_per_token2": 0,
                         "d_s_per_token2": 0},
                   "32": {"a_s": 0.2, "b_s_per_token": 1e-6, "c_s_per_token2": 0,
                          "d_s_per_token2": 0}},
           "rolling": [{"requests_per_s": 1, "price": 0.1, "slack": 2, "stretch": 1,
                        "waiting_weight": 1, "calm_s": 0, "commit": "fixed32"}]})");
  EXPECT_NE(why().find("rolling: it has no SP size 32"), std::string::npos) << why();
  EXPECT_NE(why().find(options.profile), std::string::npos) << why();
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
  options.policy = "pipeline4";
  EXPECT_EQ(Why(options), "--policy: 'pipeline4' is for skeinctl simulate only");
  options.policy = "tetris";
  options.prefill_tp = "3";
  EXPECT_EQ(Why(options), "--prefill-tp: '3' is not auto, 1, 2, 4 or 8");
  options.prefill_tp = "2";
  options.profile = "";
  EXPECT_NE(Why(options).find("--prefill-tp: they need a latency profile"), std::string::npos);
  options.prefill_tp = "auto";
  options.profile = "llama3-8b-a100";
  options.improvement_rate = "1";
  EXPECT_EQ(Why(options).find("--improvement-rate: '1'"), 0u) << Why(options);
}

}  // namespace
}  // namespace skein::services
