#include "engine/model/load/rope_table.h"

#include <cmath>

#include "engine/model/testing/slow_forward.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

using nlohmann::json;

void ExpectAgrees(const json& config, int head_dim) {
  const auto rope = ParseRopeConfig(config, config["max_position_embeddings"]);
  ASSERT_TRUE(rope.ok()) << rope.status();
  const std::vector<double> frequencies = InverseFrequencies(*rope, head_dim);
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(head_dim / 2));
  for (int i = 0; i < head_dim / 2; ++i) {
    const double expected = SlowInverseFrequency(config, head_dim, i);
    EXPECT_NEAR(frequencies[i], expected, expected * 1e-12) << i;
  }
  EXPECT_NEAR(AttentionFactor(*rope), SlowAttentionFactor(config), 1e-12);
}

json Llama31() {
  return {{"max_position_embeddings", 131072},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}}};
}

json Qwen25Yarn() {
  return {{"max_position_embeddings", 32768},
          {"rope_theta", 1000000.0},
          {"rope_scaling",
           {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}};
}

TEST(RopeTableTest, AgreesWithTheFormulas) {
  ExpectAgrees({{"max_position_embeddings", 2048}}, 64);
  ExpectAgrees({{"max_position_embeddings", 2048}, {"rope_theta", 1e6}}, 10);
  ExpectAgrees(
      {{"max_position_embeddings", 2048}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}},
      128);
  ExpectAgrees(Llama31(), 128);
  ExpectAgrees(Qwen25Yarn(), 128);
}

// Worked by hand. Pair i of 64 turns 500000^(-i/64) radians a token. i = 20: wave length 2π ·
// 500000^(20/64) = 379.5 < 8192/4, kept. i = 32: 2π · 707.107 = 4442.9, between 2048 and 8192:
// smooth = (8192/4442.9 - 1) / 3 = 0.28128. i = 40: 22911 > 8192, divided by 8.
TEST(RopeTableTest, Llama3ByHand) {
  const std::vector<double> f = InverseFrequencies(*ParseRopeConfig(Llama31(), 131072), 128);
  EXPECT_NEAR(f[20], std::pow(500000.0, -20.0 / 64), 1e-15);
  EXPECT_NEAR(f[32] * 707.10678, 0.28128 + (1 - 0.28128) / 8, 1e-5);
  EXPECT_NEAR(f[40], std::pow(500000.0, -40.0 / 64) / 8, 1e-15);
}

// Worked by hand. The ramp begins at floor(128 · ln(32768 / (32 · 2π)) / (2 ln 10^6)) = floor(23.6)
// = 23 and ends at ceil(128 · ln(32768 / 2π) / (2 ln 10^6)) = ceil(39.6) = 40.
TEST(RopeTableTest, YarnByHand) {
  const RopeConfig rope = *ParseRopeConfig(Qwen25Yarn(), 32768);
  const std::vector<double> f = InverseFrequencies(rope, 128);
  const auto plain = [](int i) { return std::pow(1e6, -i / 64.0); };
  EXPECT_NEAR(f[23] / plain(23), 1.0, 1e-12);
  EXPECT_NEAR(f[24] / plain(24), 1.0 - 0.75 / 17, 1e-12);
  EXPECT_NEAR(f[31] / plain(31), 1.0 - 0.75 * 8 / 17, 1e-12);
  EXPECT_NEAR(f[40] / plain(40), 0.25, 1e-12);
  EXPECT_NEAR(AttentionFactor(rope), 0.1 * std::log(4.0) + 1.0, 1e-12);
}

// transformers' _compute_yarn_parameters: the two together, or neither of them. Worked by hand,
// with m(x) = 0.1 x ln(factor) + 1.
TEST(RopeTableTest, YarnsAttentionFactorTakesBothMscalesOrNeither) {
  const auto factor = [](double factor, double mscale, double mscale_all_dim) {
    RopeConfig rope;
    rope.kind = RopeKind::kYarn;
    rope.factor = factor;
    rope.original_max_positions = 4096;
    rope.mscale = mscale;
    rope.mscale_all_dim = mscale_all_dim;
    return AttentionFactor(rope);
  };
  constexpr double kOf40 = 1.3688879454113936;  // m(1)
  EXPECT_NEAR(factor(40, 0, 0), kOf40, 1e-12);
  EXPECT_NEAR(factor(40, 0.707, 0), kOf40, 1e-12);
  EXPECT_NEAR(factor(40, 0, 0.5), kOf40, 1e-12);
  EXPECT_NEAR(factor(40, 0.707, 1), 0.9210423553163399, 1e-12);
  EXPECT_NEAR(factor(40, 0.707, 0.5), 1.064468903941252, 1e-12);
  EXPECT_EQ(factor(1, 0, 0), 1);
  EXPECT_EQ(factor(0.5, 0.707, 0), 1);
}

TEST(RopeTableTest, TableHoldsScaledAngles) {
  RopeConfig rope;
  rope.kind = RopeKind::kYarn;
  rope.factor = 1.0;
  rope.original_max_positions = 100;
  rope.attention_factor = 1.5;
  const RopeAngles angles(rope, 4, 50);
  const RopeTable table = angles.table();
  EXPECT_EQ(table.max_positions, 50);
  EXPECT_EQ(table.head_dim, 4);
  EXPECT_NEAR(table.cos[7 * 2 + 0], 1.5 * std::cos(7.0), 1e-6);
  EXPECT_NEAR(table.sin[7 * 2 + 1], 1.5 * std::sin(0.07), 1e-6);
}

}  // namespace
}  // namespace skein::engine
