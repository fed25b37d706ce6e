#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int32_t SampleOne(std::span<const float> logits, const SamplingParams& params, uint64_t index = 0,
                  std::span<const int32_t> prompt = {}, std::span<const int32_t> output = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  const auto token = sampler.Sample(logits, params, index, prompt, output);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.ok() ? token->token : -1;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

// Logits of a rugged, reproducible distribution.
std::vector<float> Rugged(int size, uint64_t seed) {
  std::vector<float> logits(size);
  for (int i = 0; i < size; ++i) logits[i] = static_cast<float>(8.0 * UniformSample(seed, i) - 4.0);
  return logits;
}

// The kept probabilities by their definition: sort everything, cut, renormalise.
std::vector<double> ExpectedDistribution(const std::vector<float>& logits,
                                         const SamplingParams& params) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) order.resize(std::min<size_t>(order.size(), params.top_k));
  std::vector<double> p(logits.size(), 0.0);
  const auto normalise = [&] {
    double total = 0.0;
    for (const int id : order) total += p[id];
    for (const int id : order) p[id] /= total;
  };
  for (const int id : order) p[id] = std::exp(double{logits[id]} / params.temperature);
  normalise();
  double reached = 0.0;
  size_t kept = 0;
  while (kept < order.size() && reached < params.top_p) reached += p[order[kept++]];
  const double least = params.min_p * p[order[0]];
  while (kept > 1 && p[order[kept - 1]] < least) --kept;
  for (size_t i = kept; i < order.size(); ++i) p[order[i]] = 0.0;
  order.resize(kept);
  normalise();
  return p;
}

// Pearson's statistic of 4,000 samples, bins expecting fewer than 5 merged; a sample of an
// impossible token fails at once.
void ExpectSamplesFollow(const std::vector<float>& logits, SamplingParams params) {
  constexpr int kSamples = 4'000;
  const std::vector<double> expected = ExpectedDistribution(logits, params);
  std::vector<int> seen(logits.size(), 0);
  Sampler sampler(static_cast<int>(logits.size()));
  params.seed = 1234;
  for (int i = 0; i < kSamples; ++i) {
    const auto token = sampler.Sample(logits, params, static_cast<uint64_t>(i), {}, {});
    ASSERT_TRUE(token.ok()) << token.status();
    ASSERT_GT(expected[token->token], 0.0) << token->token;
    ++seen[token->token];
  }
  double statistic = 0.0, rare_expected = 0.0, rare_seen = 0.0;
  int bins = 0;
  const auto add = [&](double want, double got) {
    statistic += (got - want) * (got - want) / want;
    ++bins;
  };
  for (size_t id = 0; id < seen.size(); ++id) {
    const double want = expected[id] * kSamples;
    if (want >= 5) {
      add(want, seen[id]);
    } else {
      rare_expected += want;
      rare_seen += seen[id];
    }
  }
  if (rare_expected >= 5) add(rare_expected, rare_seen);
  const double freedom = std::max(bins - 1, 1);
  EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom)) << bins << " bins";
}

TEST(SamplerTest, SamplesFollowTheDistribution) {
  const std::vector<float> logits = Rugged(200, 1);
  SamplingParams params;
  ExpectSamplesFollow(logits, params);
  params.temperature = 0.5f;
  ExpectSamplesFollow(logits, params);
  params.temperature = 2.0f;
  ExpectSamplesFollow(logits, params);
}

TEST(SamplerTest, SamplesFollowTheTruncatedDistribution) {
  const std::vector<float> logits = Rugged(200, 2);
  SamplingParams params;
  params.top_k = 17;
  ExpectSamplesFollow(logits, params);
  params.top_p = 0.6f;
  ExpectSamplesFollow(logits, params);
  params.top_k = 0;
  ExpectSamplesFollow(logits, params);
  params.top_p = 0.97f;  // more than the first sorted stretch
  params.temperature = 1.5f;
  ExpectSamplesFollow(logits, params);
  params.min_p = 0.05f;
  ExpectSamplesFollow(logits, params);
  params.top_p = 1.0f;
  ExpectSamplesFollow(logits, params);
}

TEST(SamplerTest, ASampleIsAFunctionOfSeedAndIndex) {
  const std::vector<float> logits = Rugged(1000, 3);
  SamplingParams params;
  params.seed = 99;
  Sampler used(1000);
  std::vector<int32_t> all;
  for (uint64_t i = 0; i < 50; ++i) all.push_back(used.Sample(logits, params, i, {}, {})->token);
  for (uint64_t i = 50; i-- > 0;) EXPECT_EQ(SampleOne(logits, params, i), all[i]) << i;
  params.seed = 100;
  std::vector<int32_t> other;
  for (uint64_t i = 0; i < 50; ++i) other.push_back(SampleOne(logits, params, i));
  EXPECT_NE(all, other);
}

// Written down so that a change of the generator or of the order of candidates is seen: it would
// change the text of requests that are resumed by another version.
TEST(SamplerTest, GoldenSamples) {
  const std::vector<float> logits = Rugged(1000, 3);
  SamplingParams params;
  params.seed = 42;
  const auto sample = [&] {
    std::vector<int32_t> tokens;
    for (uint64_t i = 0; i < 6; ++i) tokens.push_back(SampleOne(logits, params, i));
    return tokens;
  };
  EXPECT_EQ(sample(), (std::vector<int32_t>{456, 314, 655, 671, 839, 283}));
  params.top_k = 50;
  params.top_p = 0.9f;
  EXPECT_EQ(sample(), (std::vector<int32_t>{929, 564, 283, 453, 63, 990}));
}

// By the definition, ties by smaller id, where vocabularies end within a stretch and many logits
// are equal.
TEST(SamplerTest, TopKKeepsTheMostLikely) {
  for (const int size : {3, 255, 256, 257, 1000, 5000}) {
    for (const int levels : {3, 1 << 20}) {
      std::vector<float> logits = Rugged(size, static_cast<uint64_t>(size + levels));
      for (float& logit : logits) logit = std::floor(logit * static_cast<float>(levels) / 8);
      std::vector<int> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return logits[a] > logits[b]; });
      for (const int top_k : {2, 7, 20, 300}) {
        if (top_k >= size) continue;
        SamplingParams params;
        params.top_k = top_k;
        params.temperature = 1e30f;  // all that is kept weighs the same
        for (uint64_t i = 0; i < 40; ++i) {
          const double place = UniformSample(params.seed, i) * top_k;
          EXPECT_EQ(SampleOne(logits, params, i), order[static_cast<size_t>(place)])
              << size << " " << levels << " " << top_k;
        }
      }
    }
  }
}

// The token by the definition: everything sorted, or by ids where nothing is truncated, and added
// up one by one.
int32_t ByDefinition(const std::vector<float>& logits, const SamplingParams& params,
                     uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const bool truncated = params.top_p < 1.0f;
  if (truncated) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
  }
  const float max = *std::max_element(logits.begin(), logits.end());
  std::vector<long double> weights;
  weights.reserve(order.size());
  for (const int32_t id : order) weights.push_back(ExpWeight(logits[id], max, params.temperature));
  const long double wanted = params.top_p * std::accumulate(weights.begin(), weights.end(), 0.0L);
  long double reached = 0.0L, kept = 0.0L;
  for (long double& weight : weights) {
    const bool cut = truncated && reached >= wanted;
    reached += weight;
    if (cut || weight < params.min_p) weight = 0.0L;
    kept += weight;
  }
  long double left = kept * UniformSample(params.seed, index);
  size_t place = 0;
  while ((left -= weights[place]) >= 0.0L) ++place;
  return order[place];
}

// Vocabularies of many stretches, flat and peaked.
TEST(SamplerTest, TokensAreThoseOfTheDefinition) {
  for (const int size : {1, 256, 257, 5000}) {
    for (const float spread : {0.01f, 1.0f, 20.0f}) {
      std::vector<float> logits = Rugged(size, static_cast<uint64_t>(size));
      for (float& logit : logits) logit *= spread;
      for (size_t i = 7; i < logits.size(); i += 7) logits[i] = logits[i - 7];
      Sampler sampler(size);
      for (const float top_p : {1.0f, 0.999999f, 0.95f, 0.3f, 1e-6f}) {
        for (const float min_p : {0.0f, 0.01f, 0.9f}) {
          SamplingParams params{.temperature = 0.8f, .top_p = top_p, .min_p = min_p, .seed = 5};
          for (uint64_t i = 0; i < 4; ++i) {
            const auto token = sampler.Sample(logits, params, i, {}, {});
            ASSERT_TRUE(token.ok()) << token.status();
            ASSERT_EQ(token->token, ByDefinition(logits, params, i))
                << size << " " << spread << " top_p " << top_p << " min_p " << min_p;
          }
        }
      }
    }
  }
}

// A vocabulary of 150,000 is read once; top_k then compares few of it and weighs what it keeps.
TEST(SamplerTest, TopKDoesNotWeighTheVocabulary) {
  const std::vector<float> logits = Rugged(150'000, 4);
  Sampler sampler(150'000);
  SamplingParams params;
  params.top_k = 20;
  params.top_p = 0.9f;
  ASSERT_TRUE(sampler.Sample(logits, params, 0, {}, {}).ok());
  EXPECT_EQ(sampler.cost().weighed, 20);
  EXPECT_LE(sampler.cost().looked_at, 20 * static_cast<int64_t>(kStretchLogits));
  ASSERT_TRUE(sampler.Sample(logits, Greedy(), 0, {}, {}).ok());
  EXPECT_EQ(sampler.cost().weighed, 0);
  EXPECT_EQ(sampler.cost().looked_at, 0);
}

TEST(SamplerTest, GreedyTakesTheSmallestOfTies) {
  const std::vector<float> logits = {1, 3, 2, 3, 3};
  EXPECT_EQ(SampleOne(logits, Greedy()), 1);
  SamplingParams one;
  one.top_k = 1;
  EXPECT_EQ(SampleOne(logits, one), 1);
  SamplingParams tiny;
  tiny.temperature = 1e-6f;
  EXPECT_EQ(SampleOne(logits, tiny), 1);
  SamplingParams nucleus;
  nucleus.top_p = 1e-6f;
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(SampleOne(logits, nucleus, i), 1);
  SamplingParams two;
  two.top_k = 2;
  for (uint64_t i = 0; i < 20; ++i) EXPECT_THAT(SampleOne(logits, two, i), ::testing::AnyOf(1, 3));
}

TEST(SamplerTest, RepetitionPenaltyOncePerToken) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 2.0f;
  const std::vector<int32_t> prompt = {0, 0, 0}, output = {0};
  EXPECT_EQ(SampleOne(std::vector<float>{4, 1.9f}, params, 0, prompt, output), 0);  // 4 / 2
  EXPECT_EQ(SampleOne(std::vector<float>{4, 2.1f}, params, 0, prompt, output), 1);
  EXPECT_EQ(SampleOne(std::vector<float>{-1, -1.9f}, params, 0, prompt, {}), 1);  // -1 · 2
}

TEST(SamplerTest, FrequencyAndPresenceCountTheOutputOnly) {
  SamplingParams params = Greedy();
  params.frequency_penalty = 0.5f;
  const std::vector<int32_t> thrice = {0, 0, 0};
  EXPECT_EQ(SampleOne(std::vector<float>{3, 1.6f}, params, 0, {}, thrice), 1);  // 3 - 1.5
  EXPECT_EQ(SampleOne(std::vector<float>{3, 1.4f}, params, 0, {}, thrice), 0);
  EXPECT_EQ(SampleOne(std::vector<float>{3, 1.6f}, params, 0, thrice, {}), 0);
  params.frequency_penalty = 0.0f;
  params.presence_penalty = 1.0f;
  EXPECT_EQ(SampleOne(std::vector<float>{3, 2.1f}, params, 0, {}, thrice), 1);
  EXPECT_EQ(SampleOne(std::vector<float>{3, 1.9f}, params, 0, {}, thrice), 0);
}

TEST(SamplerTest, PenaltiesLeaveNoTrace) {
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.5f;
  params.frequency_penalty = 1.0f;
  Sampler sampler(3);
  const std::vector<float> logits = {3, 2.5f, 0};
  const std::vector<int32_t> history = {0, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sampler.Sample(logits, params, 0, history, history)->token, 1);
    EXPECT_EQ(sampler.Sample(logits, Greedy(), 0, history, history)->token, 0);
  }
}

TEST(SamplerTest, BiasAndMinTokens) {
  SamplingParams params = Greedy();
  params.logit_bias = {{2, 100.0f}, {0, -100.0f}};
  const std::vector<float> logits = {5, 4, 3};
  EXPECT_EQ(SampleOne(logits, params), 2);
  params.suppressed_until_min_tokens = {2};
  params.min_tokens = 4;
  EXPECT_EQ(SampleOne(logits, params, 3), 1);
  EXPECT_EQ(SampleOne(logits, params, 4), 2);
}

TEST(SamplerTest, NothingLeftToSample) {
  SamplingParams params;
  params.suppressed_until_min_tokens = {0, 1};
  params.min_tokens = 1;
  const auto token = Sampler(2).Sample(std::vector<float>{1, 2}, params, 0, {}, {});
  EXPECT_EQ(token.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SamplerTest, AFailureLeavesNothingBehind) {
  Sampler used(4), fresh(4);
  SamplingParams none;
  none.min_tokens = 1;
  none.suppressed_until_min_tokens = {0, 1, 2, 3};
  none.frequency_penalty = 1.0f;
  SamplingParams params;
  params.repetition_penalty = 1.5f;
  const std::vector<float> logits = {1, 2, 3, 2.5f};
  const std::vector<int32_t> history = {1, 2, 2};
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_FALSE(used.Sample(logits, none, 0, history, history).ok());
    EXPECT_EQ(used.Sample(logits, params, i, history, history)->token,
              fresh.Sample(logits, params, i, history, history)->token);
  }
}

TEST(SamplingParamsTest, SomeTokenIsLeft) {
  SamplingParams params;
  EXPECT_TRUE(CheckTokenLeft(params, 3).ok());
  params.suppressed_until_min_tokens = {0, 1, 2, 2};
  EXPECT_TRUE(CheckTokenLeft(params, 3).ok()) << "min_tokens is 0";
  params.min_tokens = 1;
  EXPECT_EQ(CheckTokenLeft(params, 3).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckTokenLeft(params, 4).ok());
  params.suppressed_until_min_tokens = {0, 0, 1, 1};
  EXPECT_TRUE(CheckTokenLeft(params, 3).ok());
  params.logit_bias = {{2, -100.0f}};
  EXPECT_TRUE(CheckTokenLeft(params, 3).ok());
  params.logit_bias = {{2, -kInfinity}};
  EXPECT_EQ(CheckTokenLeft(params, 3).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SamplerTest, UnusableLogitsAreAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, kInfinity}) {
    const std::vector<float> logits = {1, bad, 3};
    for (const SamplingParams& params : {Greedy(), SamplingParams()}) {
      const auto token = Sampler(3).Sample(logits, params, 0, {}, {});
      EXPECT_EQ(token.status().code(), absl::StatusCode::kInternal);
    }
    EXPECT_FALSE(LogprobsOf(logits, 0, 0).ok());
  }
  const std::vector<float> masked = {-kInfinity, 1, -kInfinity};
  EXPECT_EQ(SampleOne(masked, SamplingParams()), 1);
}

TEST(SamplerTest, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(2.0f),
                                     std::log(1.0f)};
  SamplingParams params = Greedy();
  params.logit_bias = {{0, 100.0f}};
  params.top_logprobs = 3;
  const auto token = Sampler(5).Sample(logits, params, 0, {}, {});
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->token, 0);
  EXPECT_NEAR(token->logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(token->top.size(), 3u);
  EXPECT_EQ(token->top[0].token, 1);
  EXPECT_NEAR(token->top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(token->top[1].token, 2);  // a tie: the smaller id first
  EXPECT_EQ(token->top[2].token, 3);
  params.top_logprobs = 0;
  EXPECT_TRUE(Sampler(5).Sample(logits, params, 0, {}, {})->top.empty());
  EXPECT_EQ(LogprobsOf(logits, 2, 99)->top.size(), 5u);
}

// As by sorting, ties by smaller id, with and without edits of what is sampled from.
TEST(SamplerTest, TopLogprobsOfManyStretches) {
  std::vector<float> logits = Rugged(5000, 6);
  for (float& logit : logits) logit = std::floor(logit * 20.0f);
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit});
  Sampler sampler(5000);
  for (const int count : {1, 5, 20, 100}) {
    for (const float bias : {0.0f, 100.0f}) {
      SamplingParams params = Greedy();
      params.top_logprobs = count;
      if (bias > 0.0f) params.logit_bias = {{4321, bias}};
      const auto token = sampler.Sample(logits, params, 0, {}, {});
      ASSERT_TRUE(token.ok()) << token.status();
      EXPECT_EQ(token->token, bias > 0.0f ? 4321 : order[0]);
      EXPECT_NEAR(token->logprob, logits[token->token] - std::log(sum), 1e-4);
      ASSERT_EQ(token->top.size(), static_cast<size_t>(count));
      for (size_t i = 0; i < token->top.size(); ++i) {
        EXPECT_EQ(token->top[i].token, order[i]) << i;
        EXPECT_NEAR(token->top[i].logprob, logits[order[i]] - std::log(sum), 1e-4) << i;
      }
    }
  }
}

TEST(SamplingParamsTest, RangesAreNamed) {
  const auto message = [](auto edit) {
    SamplingParams params;
    edit(params);
    return std::string(CheckSamplingParams(params, 10).message());
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_THAT(message([](SamplingParams& p) { p.temperature = -1; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](SamplingParams& p) { p.temperature = NAN; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](SamplingParams& p) { p.temperature = kInfinity; }),
              HasSubstr("temperature"));
  EXPECT_THAT(message([](SamplingParams& p) { p.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](SamplingParams& p) { p.top_p = NAN; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](SamplingParams& p) { p.top_k = -1; }), HasSubstr("top_k"));
  EXPECT_THAT(message([](SamplingParams& p) { p.min_p = 1.5f; }), HasSubstr("min_p"));
  EXPECT_THAT(message([](SamplingParams& p) { p.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty"));
  EXPECT_THAT(message([](SamplingParams& p) { p.presence_penalty = 3; }),
              HasSubstr("presence_penalty"));
  EXPECT_THAT(message([](SamplingParams& p) { p.frequency_penalty = -3; }),
              HasSubstr("frequency_penalty"));
  EXPECT_THAT(message([](SamplingParams& p) {
                p.logit_bias = {{10, 1}};
              }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(message([](SamplingParams& p) {
                p.logit_bias = {{0, NAN}};
              }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(message([](SamplingParams& p) { p.suppressed_until_min_tokens = {-1}; }),
              HasSubstr("suppressed_until_min_tokens"));
  EXPECT_THAT(message([](SamplingParams& p) { p.min_tokens = -1; }), HasSubstr("min_tokens"));
  EXPECT_THAT(message([](SamplingParams& p) { p.top_logprobs = -2; }), HasSubstr("top_logprobs"));
}

}  // namespace
}  // namespace skein::engine
