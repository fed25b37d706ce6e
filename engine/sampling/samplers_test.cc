#include "engine/sampling/samplers.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <vector>

#include "engine/sampling/philox.h"

namespace skein::engine {
namespace {

constexpr int kVocabulary = 3000;
constexpr int64_t kRows = 40;

std::vector<float> Row(int64_t row) {
  std::vector<float> logits(kVocabulary);
  for (int i = 0; i < kVocabulary; ++i) {
    logits[static_cast<size_t>(i)] = static_cast<float>(
        6.0 * UniformSample(static_cast<uint64_t>(row), static_cast<uint64_t>(i)));
  }
  return logits;
}

// Greedy, top_k, top_p, penalties: of every kind, one after another.
SamplingParams ParamsOf(int64_t row) {
  SamplingParams params;
  params.seed = static_cast<uint64_t>(row) * 7 + 1;
  if (row % 4 == 0) params.temperature = 0.0f;
  if (row % 4 == 1) params.top_k = 20;
  if (row % 4 == 2) params.top_p = 0.8f;
  if (row % 4 == 3) params.repetition_penalty = 1.3f;
  return params;
}

std::vector<int32_t> SampleAll(Samplers& samplers) {
  std::vector<int32_t> tokens(kRows);
  const std::vector<int32_t> prompt = {1, 2, 3, 2900};
  samplers.ForRows(kRows, [&](int64_t row, Sampler& sampler) {
    const auto token =
        sampler.Sample(Row(row), ParamsOf(row), static_cast<uint64_t>(row), prompt, {});
    ASSERT_TRUE(token.ok()) << token.status();
    tokens[static_cast<size_t>(row)] = token->token;
  });
  return tokens;
}

TEST(SamplersTest, TokensDoNotDependOnThreads) {
  Samplers alone(kVocabulary, nullptr);
  const std::vector<int32_t> expected = SampleAll(alone);
  EXPECT_EQ(alone.used(), 1);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    Samplers samplers(kVocabulary, &pool);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(SampleAll(samplers), expected) << threads;
  }
}

// As many rows as threads, none of which ends before all have begun.
TEST(SamplersTest, AllThreadsSample) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  Samplers samplers(kVocabulary, &pool);
  std::barrier all_began(kThreads);
  samplers.ForRows(kThreads, [&](int64_t, Sampler&) { all_began.arrive_and_wait(); });
  EXPECT_EQ(samplers.used(), kThreads);
}

TEST(SamplersTest, NoRows) {
  ThreadPool pool(2);
  Samplers samplers(kVocabulary, &pool);
  samplers.ForRows(0, [](int64_t, Sampler&) { FAIL(); });
  EXPECT_EQ(samplers.used(), 0);
}

}  // namespace
}  // namespace skein::engine
