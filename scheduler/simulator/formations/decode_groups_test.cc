#include "scheduler/simulator/formations/decode_groups.h"

#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

DecodeOptions Decode(int instances) {
  DecodeOptions options;
  options.instances = instances;
  options.blocks = 1000;
  options.step_base_s = 0.1;
  options.step_per_sequence_s = 0.01;
  options.step_per_kv_token_s = 0;
  return options;
}

DecodeGroupsOptions Groups(std::string_view formation) {
  DecodeGroupsOptions options;
  options.formation = *DecodeFormation::Parse(formation);
  options.profile.gains = {{2, 1.6}, {4, 2.1}, {8, 2.5}};
  options.driver.policy.min_dwell_us = kSecondUs;
  return options;
}

struct Load {
  std::vector<SimRequest> requests;
  std::vector<PrefillOutcome> prefilled;
};

// One request in each gap; prefill takes 10 ms.
Load Every(double gap_s, int count, int64_t output_tokens, double from_s = 0) {
  Load load;
  for (int i = 0; i < count; ++i) {
    const double at_s = from_s + i * gap_s;
    load.requests.push_back({at_s, 100, output_tokens});
    load.prefilled.push_back({at_s, at_s + 0.01});
  }
  return load;
}

DecodeGroupsRun Decoded(const Load& load, const DecodeOptions& decode,
                        const DecodeGroupsOptions& groups) {
  return RunDecodeGroups(load.requests, load.prefilled, decode, groups);
}

TEST(DecodeGroupsTest, NamesAreParsed) {
  for (const char* name :
       {"independent", "bound(2)", "bound(4)", "bound(8)", "shift", "hybrid", "auto"}) {
    EXPECT_EQ(DecodeFormation::Parse(name)->name, name);
  }
  EXPECT_EQ(DecodeFormation::Parse("bound(3)").status().message(),
            "'bound(3)' is not independent, bound(2), bound(4), bound(8), shift, hybrid or auto");
}

TEST(DecodeGroupsTest, SizesFollowTheNode) {
  const auto size = [](const char* name, int32_t node_instances) {
    return DecodeFormation::Parse(name)->SizeIn(node_instances);
  };
  for (const int32_t node_instances : {1, 4, 8}) {
    EXPECT_EQ(size("independent", node_instances), 1);
    EXPECT_EQ(size("bound(4)", node_instances), 4);
    EXPECT_EQ(size("auto", node_instances), 1);
  }
  const std::vector<std::array<int32_t, 3>> expected = {{1, 1, 1}, {2, 2, 1},  {4, 4, 2}, {7, 4, 2},
                                                        {8, 8, 4}, {16, 8, 8}, {64, 8, 8}};
  for (const auto& [node_instances, shift, hybrid] : expected) {
    EXPECT_EQ(size("shift", node_instances), shift) << node_instances;
    EXPECT_EQ(size("hybrid", node_instances), hybrid) << node_instances;
  }
}

TEST(DecodeGroupsTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(CheckDecodeGroups(Decode(4), Groups("bound(8)")).message(),
            "bound(8) needs more decode instances than the 4 of a node");
  EXPECT_EQ(CheckDecodeGroups(Decode(3), Groups("hybrid")).message(),
            "hybrid needs more decode instances than the 3 of a node");
  DecodeGroupsOptions shift = Groups("shift");
  shift.profile.shifts = {{4, {.tokens = 6}}};
  EXPECT_TRUE(CheckDecodeGroups(Decode(4), shift).ok());
  EXPECT_EQ(CheckDecodeGroups(Decode(8), shift).message(),
            "shift needs a profile whose formations name shift_tokens of 8 instances");
  EXPECT_EQ(CheckDecodeGroups(Decode(1), shift).message(),
            "shift needs more decode instances than the 1 of a node");
  DecodeGroupsOptions groups = Groups("auto");
  EXPECT_TRUE(CheckDecodeGroups(Decode(4), groups).ok());
  groups.driver.policy.bind_sequences = -1;
  EXPECT_FALSE(CheckDecodeGroups(Decode(4), groups).ok());
  groups.batch_sequences = 0;
  EXPECT_EQ(CheckDecodeGroups(Decode(4), groups).message(),
            "decode_batch_sequences: 0 is not positive");
}

TEST(DecodeGroupsTest, WindowsSlide) {
  EXPECT_EQ(MostInWindow({}, 5), 0);
  EXPECT_EQ(MostInWindow({{0, 3}, {4, 2}, {5, 1}, {9, 2}}, 5), 5);
  EXPECT_EQ(MostInWindow({{0, 1}, {10, 4}}, 5), 4);
}

TEST(DecodeGroupsTest, EachFormationMakesQuietTokensFasterByItsGain) {
  const Load load = Every(60, 4, 200);
  for (const auto& [name, gain] : {std::pair("independent", 1.0), std::pair("bound(2)", 1.6),
                                   std::pair("bound(4)", 2.1), std::pair("bound(8)", 2.5)}) {
    const DecodeGroupsRun run = Decoded(load, Decode(8), Groups(name));
    EXPECT_NEAR(run.figures.tpot_p50_s, 0.11 / gain, 1e-6) << name;
    EXPECT_EQ(run.figures.queue_p99_s, 0) << name;
    EXPECT_NEAR(run.figures.peak_tokens_per_s, 45 * gain / 5, 2) << name;
    EXPECT_EQ(run.figures.step_share[0], gain == 1 ? 1 : 0) << name;
    EXPECT_EQ(run.figures.step_share[1], gain == 1 ? 0 : 1) << name;
  }
}

TEST(DecodeGroupsTest, BurstsGoFurtherAlone) {
  const Load load = Every(0.05, 400, 30);
  const DecodeGroupsRun alone = Decoded(load, Decode(8), Groups("independent"));
  const DecodeGroupsRun bound = Decoded(load, Decode(8), Groups("bound(8)"));
  EXPECT_GT(alone.figures.peak_tokens_per_s, 2 * bound.figures.peak_tokens_per_s);
  EXPECT_LT(alone.figures.tpot_p50_s, bound.figures.tpot_p50_s);
}

// One half is bound and runs in TP, the other alone: which one has a request is told by its size.
TEST(DecodeGroupsTest, AHybridRunsBothKindsOfSteps) {
  const Load load = Every(0.5, 100, 30);
  const DecodeGroupsRun run = Decoded(load, Decode(8), Groups("hybrid"));
  EXPECT_EQ(run.run.finished, 100);
  EXPECT_GT(run.figures.step_share[0], 0);
  EXPECT_GT(run.figures.step_share[1], 0);
  EXPECT_EQ(run.figures.step_share[2], 0);
  std::set<std::pair<int32_t, int32_t>> placed;
  for (const DecodeOutcome& outcome : run.outcomes) placed.insert({outcome.instance, outcome.size});
  EXPECT_EQ(placed,
            (std::set<std::pair<int32_t, int32_t>>{{0, 4}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}));
}

TEST(DecodeGroupsTest, ShiftRunsFewTokensInTpAndManyInSp) {
  DecodeGroupsOptions shift = Groups("shift");
  shift.profile.shifts = {{8, {.tokens = 18}}};
  const Load quiet = Every(60, 4, 200);
  EXPECT_EQ(Decoded(quiet, Decode(8), shift).figures.tpot_p50_s,
            Decoded(quiet, Decode(8), Groups("bound(8)")).figures.tpot_p50_s);
  const Load burst = Every(0.05, 400, 30);
  const DecodeFigures shifted = Decoded(burst, Decode(8), shift).figures;
  const DecodeFigures tp = Decoded(burst, Decode(8), Groups("bound(8)")).figures;
  EXPECT_EQ(shifted.step_share[0], 0);
  EXPECT_GT(shifted.step_share[1], 0);
  EXPECT_GT(shifted.step_share[2], 0);
  EXPECT_EQ(tp.step_share[1], 1);
  EXPECT_GT(shifted.peak_tokens_per_s, tp.peak_tokens_per_s);
  EXPECT_LT(shifted.tpot_p50_s, tp.tpot_p50_s);
}

// Quiet, a burst, quiet.
Load Phases() {
  Load load = Every(8, 5, 40);
  for (const Load& more : {Every(0.08, 300, 30, 45), Every(8, 5, 40, 100)}) {
    load.requests.insert(load.requests.end(), more.requests.begin(), more.requests.end());
    load.prefilled.insert(load.prefilled.end(), more.prefilled.begin(), more.prefilled.end());
  }
  return load;
}

TEST(DecodeGroupsTest, AutoBindsWhenQuietAndReleasesInBursts) {
  const Load load = Phases();
  const DecodeGroupsRun run = Decoded(load, Decode(8), Groups("auto"));
  EXPECT_GE(run.figures.switches.binds, 2);
  EXPECT_GE(run.figures.switches.releases, 1);
  EXPECT_EQ(run.figures.switches.others, 0);
  EXPECT_GT(run.figures.step_share[0], 0);
  EXPECT_GT(run.figures.step_share[1], 0);
  EXPECT_EQ(run.outcomes.back().size, 8);
  EXPECT_NEAR(static_cast<double>(run.outcomes.back().last_us - run.outcomes.back().second_us) /
                  kSecondUs / 38,
              0.11 / 2.5, 1e-6);
  const DecodeGroupsRun alone = Decoded(load, Decode(8), Groups("independent"));
  EXPECT_GT(run.figures.peak_tokens_per_s, 0.9 * alone.figures.peak_tokens_per_s);
}

TEST(DecodeGroupsTest, AutoWithoutAGainWorksAlone) {
  const Load load = Phases();
  DecodeGroupsOptions groups = Groups("auto");
  groups.profile = {};
  const DecodeGroupsRun run = Decoded(load, Decode(8), groups);
  EXPECT_EQ(run.figures.switches.binds, 0);
  EXPECT_EQ(run.figures.step_share[0], 1);
  const DecodeGroupsRun alone = Decoded(load, Decode(8), Groups("independent"));
  EXPECT_EQ(run.figures.tpot_p99_s, alone.figures.tpot_p99_s);
}

TEST(DecodeGroupsTest, ARequestWaitsForRoom) {
  DecodeOptions decode = Decode(1);
  decode.blocks = 10;
  const DecodeGroupsRun run = Decoded(Every(0.1, 3, 50), decode, Groups("independent"));
  EXPECT_EQ(run.run.finished, 3);
  EXPECT_GT(run.run.blocked_s, 5 + 10);
}

// Whatever the nodes, load and formation: each request gets its tokens.
TEST(DecodeGroupsTest, AtRandomAllRequestsEnd) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    Load load;
    double at_s = 0;
    for (int i = 0; i < 150; ++i) {
      at_s += random.Uniform() * (i % 50 < 25 ? 2 : 0.1);
      const auto prompt = static_cast<int64_t>(1 + random.Uniform() * 300);
      const auto output = static_cast<int64_t>(1 + random.Uniform() * 60);
      load.requests.push_back({at_s, prompt, output});
      load.prefilled.push_back({at_s + random.Uniform(), at_s + 1 + random.Uniform()});
    }
    for (const char* name : {"independent", "bound(2)", "bound(4)", "shift", "hybrid", "auto"}) {
      DecodeOptions decode = Decode(10);
      decode.blocks = 60;
      DecodeGroupsOptions groups = Groups(name);
      groups.node_instances = 4;
      groups.profile.shifts = {{4, {.tokens = 3}}};
      groups.batch_sequences = 1 + static_cast<int64_t>(random.Uniform() * 8);
      const DecodeGroupsRun run = Decoded(load, decode, groups);
      EXPECT_EQ(run.run.finished, 150) << seed << name;
      const std::array<double, kStepKinds>& share = run.figures.step_share;
      EXPECT_NEAR(std::accumulate(share.begin(), share.end(), 0.0), 1, 1e-9) << seed << name;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
