#include "scheduler/simulator/elastic_pool_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "scheduler/plan/latency/builtin_models.h"

namespace skein::scheduler {
namespace {

// An instance holds 100,000 tokens; a step takes 10 ms with one sequence and no KV to speak of.
ElasticPoolOptions Options(int instances) {
  return {.instances = instances,
          .kv_tokens = 100'000,
          .sequences_max = 4,
          .step_base_s = 0.01,
          .step_per_sequence_s = 0.001,
          .step_per_kv_token_s = 0};
}

double Prefill(int sp, int64_t tokens) { return Llama3_8bA100().Seconds(sp, 0, tokens); }

TEST(ElasticPool, APromptTakesWhatMakesItFastest) {
  std::vector<ChunkPlan> chunks;
  const ElasticPoolRun run =
      RunElasticPool({{1, 4096, 1}, {10, 200'000, 1}}, Llama3_8bA100(), Options(32),
                     [&](size_t, const ChunkPlan& chunk) { chunks.push_back(chunk); });
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].instances.size(), 4u) << "Tetris's table 1";
  EXPECT_EQ(chunks[1].instances.size(), 16u);
  EXPECT_NEAR(run.prefill.outcomes[0].end_s, 1 + Prefill(4, 4096), 1e-9);
  EXPECT_EQ(run.decode.finished, 2);
}

// Two at the same moment: the first takes 16 of 16 instances, whatever the second would need.
TEST(ElasticPool, IsGreedyAndStartsInOrder) {
  const ElasticPoolRun run =
      RunElasticPool({{0, 100'000, 1}, {0, 4096, 1}}, Llama3_8bA100(), Options(16));
  EXPECT_NEAR(run.prefill.outcomes[0].end_s, Prefill(16, 100'000), 1e-9);
  EXPECT_NEAR(run.prefill.outcomes[1].start_s, Prefill(16, 100'000), 1e-9);
}

// After its prefill a sequence holds one instance; the prompt that comes has the others, of which 8
// are the largest SP size that fits.
TEST(ElasticPool, DecodeTakesItsInstancesFromThePool) {
  std::vector<size_t> sizes;
  const ElasticPoolRun run = RunElasticPool(
      {{0, 90'000, 1001}, {5, 90'000, 1}}, Llama3_8bA100(), Options(16),
      [&](size_t, const ChunkPlan& chunk) { sizes.push_back(chunk.instances.size()); });
  EXPECT_EQ(sizes, (std::vector<size_t>{16, 8}));
  // 1,000 steps of one sequence.
  EXPECT_NEAR(run.decode.end_s, Prefill(16, 90'000) + 1000 * 0.011, 1e-6);
  EXPECT_NEAR(run.decode.tbt.Percentile(0.5), 0.011, 0.011 * 0.01);
  EXPECT_EQ(run.decode.tbt.count(), 1000);
  EXPECT_NEAR(run.decode.busy_instance_s, 1000 * 0.011, 1e-6);
}

// Four sequences share an instance; a fifth makes decode take a second one, until one ends.
TEST(ElasticPool, DecodeGrowsWithItsBatch) {
  for (const int sequences : {4, 5}) {
    std::vector<SimRequest> requests;
    for (int i = 0; i < sequences; ++i) requests.push_back({0.5 * i, 1000, 5001});
    requests.push_back({20, 4096, 1});
    requests.push_back({500, 4096, 1});
    std::vector<size_t> sizes;
    const ElasticPoolRun run = RunElasticPool(
        requests, Llama3_8bA100(), Options(5),
        [&](size_t, const ChunkPlan& chunk) { sizes.push_back(chunk.instances.size()); });
    EXPECT_EQ(sizes[static_cast<size_t>(sequences)], sequences == 4 ? 4u : 2u);
    EXPECT_EQ(sizes.back(), 4u) << "all have ended";
    EXPECT_EQ(run.decode.finished, sequences + 2);
  }
}

// Random loads: no instance computes two prompts at a time, each prompt once, the pool is never
// exceeded by prompts and the KV of what decodes, and all sequences end.
TEST(ElasticPool, ConservesInstancesAndWork) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    const auto requests = GenerateWorkload(*LengthDistribution::OfPaper("short"),
                                           LengthDistribution::Outputs(), {6, 400, 1, seed});
    const ElasticPoolOptions options = ElasticPoolOptions::Of(16, {});
    ASSERT_TRUE(CheckElasticPool(options, Llama3_8bA100(), requests).ok());
    std::map<int, double> free_s;
    std::vector<int> times(requests.size(), 0);
    double busy_s = 0;
    const ElasticPoolRun run = RunElasticPool(
        requests, Llama3_8bA100(), options, [&](size_t request, const ChunkPlan& chunk) {
          ++times[request];
          EXPECT_EQ(chunk.tokens, requests[request].prompt_tokens);
          for (const int i : chunk.instances) {
            EXPECT_LT(i, options.instances);
            EXPECT_GE(chunk.start_s, free_s[i] - 1e-9);
            free_s[i] = chunk.end_s;
          }
          busy_s += static_cast<double>(chunk.instances.size()) * (chunk.end_s - chunk.start_s);
        });
    EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    EXPECT_NEAR(run.prefill.busy_instance_s, busy_s, 1e-6);
    EXPECT_EQ(run.decode.finished, static_cast<int64_t>(requests.size()));
    const double span_s = std::max(run.prefill.end_s, run.decode.end_s);
    EXPECT_LE(busy_s + run.decode.busy_instance_s, options.instances * span_s);
    int64_t tokens = 0;
    for (const SimRequest& request : requests) tokens += request.output_tokens - 1;
    EXPECT_NEAR(static_cast<double>(run.decode.tbt.count()), static_cast<double>(tokens), 2);
  }
}

TEST(ElasticPool, WrongOptionsAreNamed) {
  const auto why = [](const ElasticPoolOptions& options, int64_t tokens) {
    return std::string(CheckElasticPool(options, Llama3_8bA100(), {{0, tokens, 1}}).message());
  };
  EXPECT_EQ(why(Options(8), 100), "");
  ElasticPoolOptions options = Options(8);
  options.kv_tokens = 0;
  EXPECT_EQ(why(options, 100), "kv_tokens is 0, not positive");
  EXPECT_EQ(why(Options(8), 800'000), "request 0: 800001 tokens are more than 8 instances hold");
}

TEST(ElasticPool, OfADisaggregatedClusterHasItsDevices) {
  const DecodeOptions decode;
  const ElasticPoolOptions options = ElasticPoolOptions::Of(16, decode);
  EXPECT_EQ(options.instances, 32);
  EXPECT_EQ(options.kv_tokens, 500'000);
  EXPECT_NEAR(options.step_base_s, 6e-3 + 7 * 1.3e-3, 1e-12);
  EXPECT_NEAR(options.step_per_kv_token_s, 8 * 1.1e-8, 1e-15);
}

}  // namespace
}  // namespace skein::scheduler
