#include "scheduler/simulator/formations/prefill_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::scheduler {
namespace {

constexpr PrefillDerivation kFast = {.exchange_s = 5e-6};

const StepProfile& Fp8() { return *FindStepProfile("llama3-70b-h200-fp8"); }

double Seconds(int ranks, int tp, int64_t tokens, const PrefillDerivation& derivation = kFast) {
  return PrefillSeconds(Fp8(), derivation, ranks, tp, 0, tokens);
}

// A short chunk takes the time of reading the weights: 69.5 GB of fp8 at 92 % of 4.8 TB/s, alone;
// in TP that of a part, but for the head.
TEST(PrefillShapesTest, AShortChunkIsBoundByReadingWeights) {
  const double read_s = Fp8().WeightCount() / (4.8e12 * 0.92);
  EXPECT_NEAR(Seconds(1, 1, 1), read_s, 0.001 * read_s);
  constexpr PrefillDerivation kFree = {.exchange_s = 0};
  const double head_s = 8192.0 * 128256 / (4.8e12 * 0.92);
  for (const int tp : {2, 4, 8}) {
    EXPECT_NEAR(Seconds(tp, tp, 8, kFree) - head_s, (read_s - head_s) / tp, 0.01 * read_s) << tp;
    EXPECT_GT(Seconds(tp, tp, 8), Seconds(tp, tp, 8, kFree));
    EXPECT_GT(Seconds(tp, 1, 8, kFree), 0.99 * read_s) << "in SP each reads all of them";
  }
}

// Where products are computed as long as weights are read, TP only adds exchanges.
TEST(PrefillShapesTest, ALongChunkIsSlowerInTp) {
  for (const int64_t tokens : {8'192, 65'536}) {
    EXPECT_LT(Seconds(8, 1, tokens), Seconds(8, 2, tokens));
    EXPECT_LT(Seconds(8, 2, tokens), Seconds(8, 8, tokens));
    EXPECT_LT(Seconds(8, 1, tokens), Seconds(4, 1, tokens));
  }
}

TEST(PrefillShapesTest, ProjectionsOfItsOwnSaveExchangesAndReadMore) {
  constexpr PrefillDerivation kSlow = {.exchange_s = 35e-6};
  constexpr PrefillDerivation kSlowOwn = {.exchange_s = 35e-6, .shares_projections = false};
  constexpr PrefillDerivation kFastOwn = {.exchange_s = 0, .shares_projections = false};
  EXPECT_LT(Seconds(4, 4, 64, kSlowOwn), Seconds(4, 4, 64, kSlow));
  EXPECT_GT(Seconds(4, 4, 64, kFastOwn), Seconds(4, 4, 64, {.exchange_s = 0}));
}

TEST(PrefillShapesTest, TheFittedModelHasAllShapesAndTheirOrder) {
  const auto derived = DeriveLatency(Fp8(), kFast, 8);
  ASSERT_TRUE(derived.ok()) << derived.status();
  EXPECT_LT(derived->worst_error, 0.5);
  const LatencyModel& model = derived->latency;
  EXPECT_EQ(model.sp_sizes(), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(model.TensorAt(3).size(), 3u);
  EXPECT_GT(model.FastestTp(8, 0, 128), 1);
  EXPECT_EQ(model.FastestTp(8, 0, 65'536), 1);
  // What it chooses is nearly the fastest by the peaks, too.
  for (int64_t tokens = 64; tokens <= 1 << 17; tokens *= 2) {
    double least_s = Seconds(8, 1, tokens);
    for (const int tp : {2, 4, 8}) least_s = std::min(least_s, Seconds(8, tp, tokens));
    EXPECT_LT(Seconds(8, model.FastestTp(8, 0, tokens), tokens), 1.15 * least_s) << tokens;
  }
}

}  // namespace
}  // namespace skein::scheduler
