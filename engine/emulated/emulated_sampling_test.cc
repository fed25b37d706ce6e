#include "engine/emulated/emulated_sampling.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/emulated/tags.h"

namespace skein::engine {
namespace {

constexpr int kVocab = 1 << 20;  // two tokens are hardly ever the same by chance
constexpr uint64_t kDigest = 0x123456789abcdefu;
const std::vector<int32_t> kPrompt = {4, 5, 6};
const std::vector<int32_t> kOutput = {7, 8, 8};

int32_t Sample(const SamplingParams& params, uint64_t index = 3,
               const std::vector<int32_t>& output = kOutput, int vocab_size = kVocab) {
  const auto sampled = SampleEmulated(kDigest, vocab_size, params, index, kPrompt, output);
  EXPECT_TRUE(sampled.ok()) << sampled.status();
  return sampled->token;
}

SamplingParams Greedy() { return {.temperature = 0}; }

TEST(EmulatedSampling, GreedyTakesTheMostLikelyWhateverSeedAndIndex) {
  SamplingParams params = Greedy();
  EXPECT_EQ(Sample(params), static_cast<int32_t>(kDigest % kVocab));
  params.seed = 9;
  EXPECT_EQ(Sample(params, 4), static_cast<int32_t>(kDigest % kVocab));
  params.temperature = 1;
  params.top_k = 1;
  EXPECT_EQ(Sample(params), static_cast<int32_t>(kDigest % kVocab));
}

TEST(EmulatedSampling, SeedIndexTemperatureAndTruncationChangeWhatIsSampled) {
  const int32_t token = Sample({});
  EXPECT_EQ(Sample({}), token);
  EXPECT_NE(Sample(Greedy()), token);
  EXPECT_NE(Sample({}, 2), token) << "an index off by one";
  EXPECT_NE(Sample({}, 4), token) << "an index off by one";
  EXPECT_NE(Sample({.seed = 1}), token);
  EXPECT_NE(Sample({.temperature = 0.5f}), token);
  EXPECT_NE(Sample({.top_p = 0.5f}), token);
  EXPECT_NE(Sample({.min_p = 0.5f}), token);
}

TEST(EmulatedSampling, TopKLeavesTheMostLikely) {
  for (uint64_t index = 0; index < 50; ++index) {
    const int32_t token = Sample({.top_k = 3}, index);
    EXPECT_LT((static_cast<uint64_t>(token) + kVocab - kDigest % kVocab) % kVocab, 3u);
  }
}

TEST(EmulatedSampling, EachPenaltyCountsItsTokens) {
  const std::vector<int32_t> once = {7, 8}, shuffled = {8, 7, 8}, none, forgotten = {8};
  for (const float temperature : {0.0f, 0.8f}) {
    SamplingParams frequency{.temperature = temperature, .frequency_penalty = 0.5f};
    SamplingParams presence{.temperature = temperature, .presence_penalty = 0.5f};
    SamplingParams repetition{.temperature = temperature, .repetition_penalty = 1.5f};
    for (const SamplingParams& params : {frequency, presence, repetition}) {
      EXPECT_EQ(Sample(params, 3, shuffled), Sample(params));
      EXPECT_NE(Sample(params, 3, forgotten), Sample(params));
      EXPECT_NE(Sample(params, 3, none), Sample(params));
      EXPECT_NE(Sample({.temperature = temperature}), Sample(params)) << "a forgotten penalty";
    }
    EXPECT_NE(Sample(frequency, 3, once), Sample(frequency));
    EXPECT_EQ(Sample(presence, 3, once), Sample(presence));
    EXPECT_EQ(Sample(repetition, 3, once), Sample(repetition));
    const SamplingParams plain{.temperature = temperature};
    EXPECT_EQ(Sample(frequency, 3, none), Sample(plain)) << "nothing to penalise";
    EXPECT_NE(Sample(repetition, 3, none), Sample(plain)) << "the prompt counts";
    EXPECT_EQ(Sample(plain, 3, none), Sample(plain)) << "without penalties the output is not read";
  }
}

TEST(EmulatedSampling, ABiasChangesWhatIsSampledAndRulesOut) {
  SamplingParams params = Greedy();
  const int32_t token = Sample(params);
  params.logit_bias = {{11, 2.0f}};
  const int32_t biased = Sample(params);
  EXPECT_NE(biased, token);
  params.logit_bias = {{11, 3.0f}};
  EXPECT_NE(Sample(params), biased);
  params.logit_bias = {{12, 2.0f}};
  EXPECT_NE(Sample(params), biased);
  for (int32_t id = 0; id < 10; ++id) {
    params.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(Sample(params, 3, kOutput, 11), 10);
}

TEST(EmulatedSampling, SuppressedIdsAreNotSampledBeforeMinTokens) {
  SamplingParams params = Greedy();
  const int32_t token = Sample(params);
  params.min_tokens = 3;
  params.suppressed_until_min_tokens = {token};
  EXPECT_EQ(Sample(params, 3), token);
  EXPECT_NE(Sample(params, 2), token);
  params.suppressed_until_min_tokens = {0, 1, 3};
  EXPECT_EQ(Sample(params, 2, kOutput, 4), 2);
  params.suppressed_until_min_tokens.push_back(2);
  const auto none = SampleEmulated(kDigest, 4, params, 2, kPrompt, kOutput);
  EXPECT_TRUE(absl::IsInvalidArgument(none.status())) << none.status();
}

TEST(EmulatedSampling, LogprobsAreOfTheDigestMostLikelyFirst) {
  SamplingParams params{.frequency_penalty = 1, .seed = 5, .top_logprobs = 3};
  const SampledToken sampled = *SampleEmulated(kDigest, 10, params, 3, kPrompt, kOutput);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].token, static_cast<int32_t>(kDigest % 10));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE(sampled.top[i].logprob, i == 0 ? 0.0f : sampled.top[i - 1].logprob);
    const int32_t id = sampled.top[i].token;
    EXPECT_EQ(EmulatedLogprobs(kDigest, 10, id, 0).logprob, sampled.top[i].logprob);
    EXPECT_NE(EmulatedLogprobs(kDigest + 1, 10, id, 0).logprob, sampled.top[i].logprob);
  }
  EXPECT_EQ(EmulatedLogprobs(kDigest, 10, sampled.token, 0).logprob, sampled.logprob);
  params.top_logprobs = -1;
  EXPECT_TRUE(SampleEmulated(kDigest, 10, params, 3, kPrompt, kOutput)->top.empty());
}

}  // namespace
}  // namespace skein::engine
