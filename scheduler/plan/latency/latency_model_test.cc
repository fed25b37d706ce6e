#include "scheduler/plan/latency/latency_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/latency/fit.h"

namespace skein::scheduler {
namespace {

std::string Why(const std::map<int, SpCoefficients>& sizes) {
  return std::string(LatencyModel::Make(sizes).status().message());
}

TEST(LatencyModelTest, IsEquationOne) {
  const LatencyModel model = *LatencyModel::Make({{1, {1, 2, 3, 4}}, {4, {0, 1, 0, 0}}});
  EXPECT_DOUBLE_EQ(model.Seconds(1, 10, 5), 1 + 2 * 5 + 3 * 10 * 5 + 4 * 25);
  EXPECT_DOUBLE_EQ(model.Seconds(4, 10, 5), 5);
  EXPECT_EQ(model.sp_sizes(), (std::vector<int>{1, 4}));
  EXPECT_FALSE(model.HasSp(2));
}

TEST(LatencyModelTest, TheLargestSizeWithinStandsForOtherNumbersOfInstances) {
  const LatencyModel model = *LatencyModel::Make({{2, {0, 1, 0, 0}}, {8, {0, 1, 0, 0}}});
  const std::pair<int, int> cases[] = {{1, 2}, {2, 2}, {3, 2}, {7, 2}, {8, 8}, {1024, 8}};
  for (const auto& [instances, size] : cases) EXPECT_EQ(model.LargestSizeWithin(instances), size);
}

TEST(LatencyModelTest, IsRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(Why({}).find("no SP size"), std::string::npos);
  EXPECT_NE(Why({{3, {0, 1, 0, 0}}}).find("sp 3"), std::string::npos);
  EXPECT_NE(Why({{0, {0, 1, 0, 0}}}).find("sp 0"), std::string::npos);
  EXPECT_NE(Why({{1 << 17, {0, 1, 0, 0}}}).find("power of two"), std::string::npos);
  EXPECT_NE(Why({{2, {-1, 1, 0, 0}}}).find("sp 2: a_s is -1"), std::string::npos);
  EXPECT_NE(Why({{2, {0, nan, 0, 0}}}).find("b_s_per_token is nan"), std::string::npos);
  EXPECT_NE(Why({{2, {0, 1, -2, 0}}}).find("c_s_per_token2 is -2"), std::string::npos);
  EXPECT_NE(Why({{2, {1, 0, 1, 0}}}).find("grow"), std::string::npos);
}

TEST(LatencyModelTest, SolvesForTheLongestChunkThatFits) {
  const LatencyModel& model = Llama3_8bA100();
  for (const int sp : model.sp_sizes()) {
    for (const int64_t history : {0, 1000, 500000}) {
      EXPECT_EQ(model.SolveChunkTokens(sp, history, 0), 0);
      EXPECT_EQ(model.SolveChunkTokens(sp, history, -1), 0);
      for (double budget_s = 0.01; budget_s < 1e4; budget_s *= 1.3) {
        const int64_t tokens = model.SolveChunkTokens(sp, history, budget_s);
        EXPECT_TRUE(tokens == 0 || model.Seconds(sp, history, tokens) <= budget_s);
        EXPECT_GT(model.Seconds(sp, history, tokens + 1), budget_s);
      }
    }
  }
  // A chunk that just fits is found: rounding does not lose the last token.
  for (const int64_t history : {0, 777, 100'003}) {
    for (int64_t tokens = 1; tokens < 1'000'000; tokens += 1 + tokens / 7) {
      const double budget_s = model.Seconds(4, history, tokens);
      EXPECT_EQ(model.SolveChunkTokens(4, history, budget_s), tokens) << history;
    }
  }
  const LatencyModel linear = *LatencyModel::Make({{1, {0, 0.25, 0, 0}}, {2, {0, 0, 0, 0.25}}});
  EXPECT_EQ(linear.SolveChunkTokens(1, 0, 1), 4);
  EXPECT_EQ(linear.SolveChunkTokens(2, 0, 1), 2);
  EXPECT_GT(linear.SolveChunkTokens(1, 0, 1e300), int64_t{1} << 50);
}

// Random sizes 1 ... 16 and random shapes of them, on which time grows with the tokens.
LatencyModel RandomModel(std::mt19937_64* random) {
  const auto unit = [&] { return static_cast<double>((*random)() >> 11) * 0x1p-53; };
  const auto drawn = [&](int ranks) {
    return SpCoefficients{unit() * 0.1 * ranks, (0.1 + unit()) * 1e-5 / ranks, unit() * 1e-9,
                          unit() * 1e-9};
  };
  std::map<int, SpCoefficients> sizes;
  std::vector<TensorShape> tensor;
  for (const int ranks : {1, 2, 4, 8, 16}) {
    sizes[ranks] = drawn(ranks);
    for (int tp = 2; tp <= ranks; tp *= 2) {
      if (unit() < 0.7) tensor.push_back({ranks, tp, drawn(ranks)});
    }
  }
  std::shuffle(tensor.begin(), tensor.end(), *random);
  return *LatencyModel::Make(sizes, tensor);
}

double Equation1(const SpCoefficients& k, int64_t history, int64_t tokens) {
  const auto c = static_cast<double>(history);
  const auto l = static_cast<double>(tokens);
  return k.a_s + l * (k.b_s_per_token + k.c_s_per_token2 * c + k.d_s_per_token2 * l);
}

// By brute force: the least over (ranks, 1) and the shapes whose tp is at most tp_max.
std::pair<double, int> Fastest(const LatencyModel& model, int ranks, int tp_max, int64_t history,
                               int64_t tokens) {
  const int at = model.IndexOf(ranks);
  std::pair<double, int> fastest = {Equation1(model.CoefficientsAt(at), history, tokens), 1};
  for (const TensorShape& shape : model.TensorAt(at)) {
    if (shape.tp > tp_max) continue;
    fastest = std::min(fastest, {Equation1(shape.coefficients, history, tokens), shape.tp});
  }
  return fastest;
}

TEST(TensorShapesTest, AChunkTakesTheTimeOfItsFastestShape) {
  std::mt19937_64 random(17);
  int of_tp[5] = {};
  for (int i = 0; i < 200; ++i) {
    const LatencyModel whole = RandomModel(&random);
    for (const int node : {1, 2, 3, 8, 64}) {
      const LatencyModel model = whole.Within({.tp_max = node});
      for (const int ranks : model.sp_sizes()) {
        const auto history = static_cast<int64_t>(random() % 100'000);
        const auto tokens = static_cast<int64_t>(1 + random() % 100'000);
        const auto [seconds, tp] = Fastest(whole, ranks, node, history, tokens);
        EXPECT_DOUBLE_EQ(model.Seconds(ranks, history, tokens), seconds);
        EXPECT_EQ(model.FastestTp(ranks, history, tokens, node), tp);
        EXPECT_EQ(model.ChooseTp(ranks, history, tokens, ranks), tp);
        EXPECT_DOUBLE_EQ(model.SecondsWith(ranks, tp, history, tokens), seconds);
        for (int possible = 1; possible <= ranks; possible *= 2) {
          const int most = std::min(possible, node);
          EXPECT_EQ(model.ChooseTp(ranks, history, tokens, possible),
                    Fastest(whole, ranks, most, history, tokens).second);
        }
        const SpCoefficients least = model.LeastAt(model.IndexOf(ranks));
        EXPECT_LE(Equation1(least, history, tokens), seconds);
        ++of_tp[tp == 1 ? 0 : tp == 2 ? 1 : tp == 4 ? 2 : tp == 8 ? 3 : 4];
      }
    }
  }
  for (const int count : of_tp) EXPECT_GT(count, 20) << "each shape is the fastest somewhere";
}

TEST(TensorShapesTest, SolvingIsTheInverse) {
  std::mt19937_64 random(18);
  for (int i = 0; i < 100; ++i) {
    const LatencyModel model = RandomModel(&random);
    for (const int ranks : model.sp_sizes()) {
      const auto history = static_cast<int64_t>(random() % 100'000);
      for (double budget_s = 0.001; budget_s < 1e3; budget_s *= 1.7) {
        const int64_t tokens = model.SolveChunkTokens(ranks, history, budget_s);
        EXPECT_TRUE(tokens == 0 || model.Seconds(ranks, history, tokens) <= budget_s);
        EXPECT_GT(model.Seconds(ranks, history, tokens + 1), budget_s);
      }
      const auto fits = static_cast<int64_t>(1 + random() % 200'000);
      EXPECT_EQ(model.SolveChunkTokens(ranks, history, model.Seconds(ranks, history, fits)), fits);
    }
  }
}

// Also where the model does not know the shape: for people who measure it.
TEST(TensorShapesTest, APinnedTpIsTakenAsFarAsTheInstancesAllow) {
  const SpCoefficients k1{1, 1, 0, 0}, k2{9, 1, 0, 0}, k8{5, 1, 0, 0};
  const LatencyModel whole =
      *LatencyModel::Make({{1, k1}, {2, k1}, {8, k1}}, {{2, 2, k2}, {8, 8, k8}, {8, 2, k2}});
  EXPECT_TRUE(whole.HasShapes());
  const LatencyModel model = whole.Within({.pinned_tp = 4});
  EXPECT_EQ(model.ChooseTp(8, 0, 10, 8), 4);
  EXPECT_EQ(model.ChooseTp(8, 0, 10, 2), 2);
  EXPECT_EQ(model.ChooseTp(1, 0, 10, 1), 1);
  EXPECT_EQ(model.Seconds(1, 0, 10), 11);
  EXPECT_EQ(model.Seconds(2, 0, 10), 19) << "the pin is clamped to the two instances";
  EXPECT_EQ(model.Seconds(8, 0, 10), 11) << "it has no (2, 4), and takes the time of (8, 1)";
  EXPECT_EQ(whole.Within({.tp_max = 6, .pinned_tp = 8}).ChooseTp(8, 0, 10, 8), 4);
  EXPECT_EQ(whole.Within({.pinned_tp = 8}).Seconds(8, 0, 10), 15);
  const LatencyModel one = whole.Within({.pinned_tp = 1});
  EXPECT_EQ(one.ChooseTp(8, 0, 10, 8), 1);
  EXPECT_EQ(one.Seconds(2, 0, 10), 11);
  EXPECT_FALSE(one.HasShapes());
  // Limits replace earlier ones.
  EXPECT_EQ(one.Within({}).Seconds(8, 0, 10), whole.Seconds(8, 0, 10));
}

TEST(TensorShapesTest, AreRefusedByName) {
  const SpCoefficients k{1, 1, 0, 0};
  const auto why = [&](const std::vector<TensorShape>& tensor) {
    return std::string(LatencyModel::Make({{1, k}, {4, k}}, tensor).status().message());
  };
  EXPECT_EQ(why({{4, 2, k}, {4, 4, k}}), "");
  EXPECT_EQ(why({{2, 2, k}}), "instances 2, tp 2: sp has no such size");
  EXPECT_EQ(why({{4, 3, k}}), "instances 4, tp 3: tp is not a power of two in 2 ... 4");
  EXPECT_EQ(why({{4, 8, k}}), "instances 4, tp 8: tp is not a power of two in 2 ... 4");
  EXPECT_EQ(why({{4, 1, k}}), "instances 4, tp 1: tp is not a power of two in 2 ... 4");
  EXPECT_EQ(why({{4, 2, k}, {4, 2, k}}), "instances 4, tp 2: occurs twice");
  EXPECT_NE(why({{4, 2, {-1, 1, 0, 0}}}).find("instances 4, tp 2: a_s is -1"), std::string::npos);
}

TEST(BuiltinModelTest, MeetsTable1) {
  const auto fit = FitLatency(Llama3_8bA100Samples());
  ASSERT_TRUE(fit.ok()) << fit.status();
  ASSERT_EQ(fit->residuals.size(), 34u);
  for (const SampleResidual& residual : fit->residuals) {
    EXPECT_LE(std::abs(residual.Relative()), residual.sample.sp <= 2 ? 0.0115 : 0.0635)
        << "sp " << residual.sample.sp << ", " << residual.sample.chunk_tokens;
  }
  for (const auto& [sp, k] : fit->sizes) EXPECT_EQ(k.c_s_per_token2, 2 * k.d_s_per_token2);
}

// By the work of a device: the products of a token 2.45 times those of 8B on one, a pair 1.25
// times; the all-reduces add a tenth to a token.
TEST(BuiltinModelTest, The70bFollowsFromTheWorkOfItsDevices) {
  const LatencyModel& small = Llama3_8bA100();
  const LatencyModel& large = Llama3_70bA100Tp4();
  ASSERT_EQ(large.sp_sizes(), small.sp_sizes());
  for (int index = 0; index < static_cast<int>(large.sp_sizes().size()); ++index) {
    const SpCoefficients& from = small.CoefficientsAt(index);
    const SpCoefficients& to = large.CoefficientsAt(index);
    EXPECT_NEAR(to.a_s, 2.5 * from.a_s, 1e-12);
    EXPECT_NEAR(to.c_s_per_token2, 1.25 * from.c_s_per_token2, 1e-18);
    EXPECT_NEAR(to.d_s_per_token2, 1.25 * from.d_s_per_token2, 1e-18);
    EXPECT_GT(to.b_s_per_token, 2.45 * from.b_s_per_token);
  }
  // A device does 137 GFLOP of products a token and a fourth of it here: at most at its peak.
  EXPECT_GT(large.CoefficientsAt(0).b_s_per_token, 2 * 68.45e9 / 4 / 312e12);
}

std::vector<LatencySample> SamplesOf(const SpCoefficients& k, bool history) {
  const LatencyModel model = *LatencyModel::Make({{2, k}});
  std::vector<LatencySample> samples;
  for (const int64_t before : {0, 4096, 65536}) {
    for (const int64_t tokens : {256, 2048, 16384, 131072}) {
      if (before == 0 || history) {
        samples.push_back({2, before, tokens, model.Seconds(2, before, tokens)});
      }
    }
  }
  return samples;
}

TEST(FitTest, FindsTheCoefficientsOfExactSamples) {
  const SpCoefficients truth{0.05, 3e-5, 1.1e-9, 7e-10};
  const auto fit = FitLatency(SamplesOf(truth, true));
  ASSERT_TRUE(fit.ok()) << fit.status();
  const SpCoefficients& found = fit->sizes.at(2);
  EXPECT_NEAR(found.a_s / truth.a_s, 1, 1e-6);
  EXPECT_NEAR(found.b_s_per_token / truth.b_s_per_token, 1, 1e-6);
  EXPECT_NEAR(found.c_s_per_token2 / truth.c_s_per_token2, 1, 1e-6);
  EXPECT_NEAR(found.d_s_per_token2 / truth.d_s_per_token2, 1, 1e-6);
}

TEST(FitTest, WithoutHistoryTheHistoryCostsTwiceTheChunk) {
  const auto fit = FitLatency(SamplesOf({0.05, 3e-5, 1e-9, 7e-10}, false));
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->sizes.at(2).c_s_per_token2, 1.4e-9, 1e-14);
}

TEST(FitTest, ZeroIsFoundAsZeroNotRefused) {
  const auto fit = FitLatency(SamplesOf({0, 3e-5, 0, 7e-10}, true));
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->sizes.at(2).a_s, 0, 1e-9);
  EXPECT_NEAR(fit->sizes.at(2).c_s_per_token2, 0, 1e-15);
}

// The attention of a small model costs less than the noise: its coefficient is found as small, or
// zero, never refused, and the others are found as they are.
TEST(FitTest, WorkBelowTheNoiseIsNoReasonToRefuse) {
  const SpCoefficients truth{1e-3, 4e-5, 2e-12, 1e-12};
  int zeros = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::minstd_rand draw(seed);
    const auto noise = [&] { return 0.95 + 0.1 * static_cast<double>(draw() % 1001) / 1000; };
    const LatencyModel model = *LatencyModel::Make({{1, truth}});
    std::vector<LatencySample> samples;
    for (const int64_t before : {0, 512}) {
      for (int64_t tokens = 16; tokens <= 1024; tokens *= 2) {
        samples.push_back({1, before, tokens, model.Seconds(1, before, tokens) * noise()});
      }
    }
    const auto fit = FitLatency(samples);
    ASSERT_TRUE(fit.ok()) << fit.status();
    const SpCoefficients& found = fit->sizes.at(1);
    zeros += found.c_s_per_token2 == 0 || found.d_s_per_token2 == 0 ? 1 : 0;
    for (const SampleResidual& residual : fit->residuals) {
      EXPECT_LT(std::abs(residual.Relative()), 0.11) << "seed " << seed;
    }
  }
  EXPECT_GT(zeros, 50);
}

double ErrorOf(const SpCoefficients& k, const std::vector<LatencySample>& samples) {
  double error = 0;
  for (const LatencySample& s : samples) {
    const auto history = static_cast<double>(s.history_tokens);
    const auto chunk = static_cast<double>(s.chunk_tokens);
    const double seconds = k.a_s + k.b_s_per_token * chunk + k.c_s_per_token2 * history * chunk +
                           k.d_s_per_token2 * chunk * chunk;
    error += (seconds / s.seconds - 1) * (seconds / s.seconds - 1);
  }
  return error;
}

// No change of a coefficient that keeps it non-negative makes the error less.
TEST(FitTest, NoOtherNonNegativeCoefficientsFitBetter) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::minstd_rand draw(seed);
    std::vector<LatencySample> samples;
    for (const int64_t before : {0, 300, 4000}) {
      for (const int64_t tokens : {100, 400, 900, 2000}) {
        const double noise = 0.8 + 0.4 * static_cast<double>(draw() % 1001) / 1000;
        samples.push_back({1, before, tokens, 1e-3 * static_cast<double>(tokens + 200) * noise});
      }
    }
    const auto fit = FitLatency(samples);
    ASSERT_TRUE(fit.ok()) << fit.status();
    const SpCoefficients best = fit->sizes.at(1);
    const double least = ErrorOf(best, samples);
    for (double SpCoefficients::*member :
         {&SpCoefficients::a_s, &SpCoefficients::b_s_per_token, &SpCoefficients::c_s_per_token2,
          &SpCoefficients::d_s_per_token2}) {
      for (const double step : {-1e-2, -1e-4, -1e-6, -1e-9, 1e-9, 1e-6, 1e-4, 1e-2}) {
        SpCoefficients other = best;
        other.*member = std::max(0.0, other.*member + step);
        EXPECT_GE(ErrorOf(other, samples), least * (1 - 1e-9)) << "seed " << seed;
      }
    }
  }
}

std::string FitWhy(const std::vector<LatencySample>& samples) {
  return std::string(FitLatency(samples).status().message());
}

TEST(FitTest, IsRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(FitWhy({}).find("no sample"), std::string::npos);
  EXPECT_NE(FitWhy({{6, 0, 1, 1}}).find("sp 6"), std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 0, 1}}).find("chunk_tokens is 0"), std::string::npos);
  EXPECT_NE(FitWhy({{2, -1, 1, 1}}).find("history_tokens is -1"), std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 1, 0}}).find("seconds is 0"), std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 1, nan}}).find("seconds is nan"), std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 1, 1}, {2, 0, 2, 1}, {2, 0, 2, 1.1}}).find("2 different"),
            std::string::npos);
  // A latency that falls with the length, and one that grows, then falls.
  EXPECT_NE(FitWhy({{2, 0, 1000, 4}, {2, 0, 2000, 3}, {2, 0, 4000, 2.5}}).find("take longer"),
            std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 1000, 1}, {2, 0, 2000, 2}, {2, 0, 4000, 8}, {2, 0, 8000, 3}})
                .find("do not follow"),
            std::string::npos);
  // All lengths equal: history alone cannot determine four coefficients.
  EXPECT_NE(FitWhy({{2, 0, 64, 1}, {2, 64, 64, 2}, {2, 128, 64, 3}, {2, 192, 64, 4}})
                .find("do not distinguish"),
            std::string::npos);
  EXPECT_NE(FitWhy({{2, 0, 1000, 1}, {2, 0, 2000, 2}, {2, 0, 4000, 4}, {2, 0, 1000, 4}})
                .find("do not follow"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::scheduler
