#include "services/orchestrator/formation_options.h"

#include <fstream>

#include "gtest/gtest.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

TEST(FormationOptions, DefaultsAreThoseOfThePolicy) {
  const auto config = FormationsFrom({});
  ASSERT_TRUE(config.ok()) << config.status();
  const scheduler::orchestrator::FormationPolicyConfig policy;
  EXPECT_TRUE(config->automatic);
  EXPECT_EQ(config->policy.bind_sequences, policy.bind_sequences);
  EXPECT_EQ(config->policy.release_sequences, policy.release_sequences);
  EXPECT_EQ(config->policy.min_dwell_us, policy.min_dwell_us);
  EXPECT_EQ(config->policy.min_gain, policy.min_gain);
  EXPECT_EQ(config->own, scheduler::OwnSequences::kShare);
  EXPECT_EQ(config->own_for.at(scheduler::orchestrator::BindReason::kPriority),
            scheduler::OwnSequences::kSoftPreempt);
  const scheduler::orchestrator::FormationConfig defaults;
  EXPECT_EQ(config->own_for, defaults.own_for);
  EXPECT_EQ(config->limits.own_pause_us, defaults.limits.own_pause_us);
  EXPECT_EQ(config->long_wait_us, defaults.long_wait_us);
  EXPECT_EQ(config->policy.share_lines, policy.share_lines);
  EXPECT_FALSE(config->shared.threshold.has_value());
  EXPECT_EQ(config->shared.min_dwell_us, defaults.shared.min_dwell_us);
  EXPECT_TRUE(config->profiles.empty());
}

TEST(FormationOptions, EachFlagIsTaken) {
  OrchestratorOptions options;
  options.formations = "manual";
  options.formation_bind_sequences = 0.5;
  options.formation_release_sequences = 2.5;
  options.formation_release_waiting_tokens = 5000;
  options.formation_dwell_s = 1.5;
  options.formation_min_gain = 1.25;
  options.formation_priority = -3;
  options.formation_own_pause_s = 2.5;
  options.formation_wait_s = 0.5;
  options.formation_share_lines = 12;
  options.shared_batch_threshold = 48;
  options.shared_mode_dwell_s = 30;
  const auto config = FormationsFrom(options);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->automatic);
  EXPECT_EQ(config->policy.bind_sequences, 0.5);
  EXPECT_EQ(config->policy.release_sequences, 2.5);
  EXPECT_EQ(config->policy.min_dwell_us, 1'500'000);
  EXPECT_EQ(config->policy.min_gain, 1.25);
  EXPECT_EQ(config->policy.dedicated_priority, 3);
  EXPECT_EQ(config->limits.own_pause_us, 2'500'000);
  EXPECT_EQ(config->long_wait_us, 500'000);
  EXPECT_EQ(config->policy.share_lines, 12);
  EXPECT_EQ(config->shared.threshold, 48);
  EXPECT_EQ(config->shared.min_dwell_us, 30'000'000);
}

TEST(FormationOptions, HowOwnSequencesFareIsTaken) {
  using Own = scheduler::OwnSequences;
  OrchestratorOptions options;
  for (const Own own : {Own::kShare, Own::kSequential, Own::kSoftPreempt, Own::kHardPreempt}) {
    options.formation_own = std::string(ToString(own));
    EXPECT_EQ(FormationsFrom(options)->own, own);
    options.formation_own_priority = options.formation_own;
    EXPECT_EQ(FormationsFrom(options)->OwnFor(scheduler::orchestrator::BindReason::kPriority), own);
  }
}

TEST(FormationOptions, WhatGainsIsInTheProfile) {
  OrchestratorOptions options;
  options.profile = "llama3-8b-a100";
  EXPECT_TRUE(FormationsFrom(options)->profiles.empty()) << "it says nothing of formations";
  Profile profile = *LoadProfile("llama3-8b-a100");
  profile.formations = {.gains = {{4, 1.5}},
                        .shifts = {{4, scheduler::ShiftRule{.tokens = 64, .tp = 2}}}};
  options.profile = ::testing::TempDir() + "/formations.json";
  std::ofstream(options.profile) << ProfileJson(profile);
  const auto config = FormationsFrom(options);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->profiles.at("").gains, profile.formations->gains);
  EXPECT_EQ(config->profiles.at("").shifts, profile.formations->shifts);
  options.profile = "nowhere.json";
  EXPECT_TRUE(FormationsFrom(options)->profiles.empty()) << "LoadPlanning tells";
}

TEST(FormationOptions, WhatThePolicyRefusesNamesTheFlags) {
  OrchestratorOptions options;
  options.formation_release_sequences = 0.5;
  EXPECT_EQ(FormationsFrom(options).status().message(),
            "--formation-release-sequences: 0.5 is not above --formation-bind-sequences, 1");
  options = {};
  options.formation_min_gain = 0.9;
  EXPECT_EQ(FormationsFrom(options).status().message().substr(0, 25), "--formation-min-gain: 0.9");
}

}  // namespace
}  // namespace skein::services
