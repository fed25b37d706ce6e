// The device's sampler against the host's: the same tokens from the same logits, parameters and
// seeds; logprobs to rounding.
#include "engine/cuda/ops/device_sampler.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/testing/twin_device.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

struct Row {
  std::vector<float> logits;
  SamplingParams params;
  uint64_t token_index = 0;
  std::vector<int32_t> prompt, output;
  int32_t given = -1;
};

class DeviceSamplerTest : public testing::Test {
 protected:
  // All rows of one vocabulary in one call.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> OnDevice(const std::vector<Row>& rows) {
    const auto vocab = static_cast<int>(rows.front().logits.size());
    auto sampler =
        DeviceSampler::Make(device_, TestingStream(), vocab, static_cast<int>(rows.size()));
    if (!sampler.ok()) return sampler.status();
    const size_t row_bytes = sizeof(float) * static_cast<size_t>(vocab);
    void* logits = device_->Alloc(row_bytes * rows.size()).value();
    std::vector<SampleRequest> requests;
    std::vector<std::unique_ptr<SeenIds>> kept;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(device_
                      ->Copy(static_cast<std::byte*>(logits) + i * row_bytes, rows[i].logits.data(),
                             row_bytes, CopyKind::kHostToDevice)
                      .ok());
      requests.push_back({static_cast<int64_t>(i), &rows[i].params, rows[i].given,
                          rows[i].token_index, rows[i].prompt, rows[i].output});
      // Every other one has no more than what was kept of both.
      if (i % 2 == 0) continue;
      kept.push_back(std::make_unique<SeenIds>(rows[i].params, rows[i].prompt));
      for (const int32_t id : rows[i].output) kept.back()->Add(id);
      requests.back().prompt = requests.back().output = {};
      requests.back().seen = kept.back().get();
    }
    std::vector<absl::StatusOr<SampledToken>> results(rows.size());
    const absl::Status sampled = (*sampler)->Sample(
        {logits, DType::kF32, static_cast<int64_t>(rows.size()), vocab, vocab}, requests, results);
    device_->Free(logits, row_bytes * rows.size());
    if (!sampled.ok()) return sampled;
    return results;
  }

  void ExpectSame(const std::vector<Row>& rows) {
    const auto results = OnDevice(rows);
    ASSERT_TRUE(results.ok()) << results.status();
    Sampler host(static_cast<int>(rows.front().logits.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      const auto expected =
          row.given >= 0
              ? LogprobsOf(row.logits, row.given, row.params.top_logprobs)
              : host.Sample(row.logits, row.params, row.token_index, row.prompt, row.output);
      SCOPED_TRACE(testing::Message() << "row " << i << " of " << row.logits.size());
      ASSERT_EQ((*results)[i].status(), expected.status());
      if (!expected.ok()) continue;
      const SampledToken& actual = *(*results)[i];
      EXPECT_EQ(actual.token, expected->token);
      EXPECT_NEAR(actual.logprob, expected->logprob, 1e-5);
      ASSERT_EQ(actual.top.size(), expected->top.size());
      for (size_t j = 0; j < actual.top.size(); ++j) {
        EXPECT_EQ(actual.top[j].token, expected->top[j].token);
        EXPECT_NEAR(actual.top[j].logprob, expected->top[j].logprob, 1e-5);
      }
    }
  }

  // Normally distributed; every fifth equal to its neighbour.
  std::vector<float> Logits(int vocab, float spread = 3.0f) {
    std::normal_distribution<float> draw(0.0f, spread);
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (float& logit : logits) logit = draw(random_);
    for (size_t i = 5; i < logits.size(); i += 5) logits[i] = logits[i - 1];
    return logits;
  }

  // `count` rows that differ in logits and seed.
  std::vector<Row> Rows(int count, int vocab, const SamplingParams& params) {
    std::vector<Row> rows(static_cast<size_t>(count));
    for (Row& row : rows) {
      row.logits = Logits(vocab);
      row.params = params;
      row.params.seed = random_();
      row.token_index = random_() % 1000;
    }
    return rows;
  }

  std::shared_ptr<Device> device_ = OpenTestingDevice();
  std::mt19937 random_{11};
};

TEST_F(DeviceSamplerTest, Greedy) {
  for (const int vocab : {1, 2, 33, 700, 1500}) {
    ExpectSame(Rows(2, vocab, {.temperature = 0}));
    ExpectSame(Rows(2, vocab, {.temperature = 1, .top_k = 1}));
  }
  Row ties{std::vector<float>(600, -1.0f), {.temperature = 0}};
  ties.logits[300] = ties.logits[299] = 0.0f;
  ties.logits[100] = -0.0f;
  ExpectSame({ties});
}

TEST_F(DeviceSamplerTest, WholeDistribution) {
  for (const int vocab : {1, 31, 1023, 1025, 3000}) {
    ExpectSame(Rows(6, vocab, {.temperature = 0.8f}));
    ExpectSame(Rows(3, vocab, {.temperature = 5.0f, .min_p = 0.1f}));
  }
}

TEST_F(DeviceSamplerTest, TopK) {
  for (const int top_k : {2, 5, 40, 600, 5000}) {
    ExpectSame(Rows(4, 1300, {.temperature = 1.5f, .top_k = top_k}));
    ExpectSame(Rows(2, 100, {.temperature = 1.5f, .top_k = top_k, .min_p = 0.05f}));
  }
}

// More than scratch has room for at once, with and without edits.
TEST_F(DeviceSamplerTest, ManyRowsOfOneCall) {
  auto rows = Rows(2 * DeviceSampler::kRowsAtOnce + 5, 70, {.temperature = 1.5f, .top_k = 9});
  for (size_t i = 0; i < rows.size(); i += 3) rows[i].params.logit_bias = {{7, 3.0f}, {9, -2.0f}};
  ExpectSame(rows);
}

TEST_F(DeviceSamplerTest, TopP) {
  for (const float top_p : {0.01f, 0.5f, 0.9f, 0.999f}) {
    ExpectSame(Rows(4, 1300, {.temperature = 1.0f, .top_p = top_p}));
    ExpectSame(Rows(2, 1300, {.temperature = 2.0f, .top_k = 50, .top_p = top_p}));
    ExpectSame(Rows(2, 70, {.temperature = 0.5f, .top_p = top_p, .min_p = 0.2f}));
  }
}

TEST_F(DeviceSamplerTest, EqualLogitsGoByTheirIds) {
  for (const SamplingParams& params :
       {SamplingParams{.top_k = 7}, SamplingParams{.top_p = 0.3f}, SamplingParams{}}) {
    std::vector<Row> rows = Rows(4, 640, params);
    for (Row& row : rows) row.logits.assign(640, 0.25f);
    ExpectSame(rows);
  }
}

TEST_F(DeviceSamplerTest, MaskedAndHugeLogits) {
  std::vector<Row> rows = Rows(4, 700, {.temperature = 1.0f, .top_p = 0.95f});
  for (Row& row : rows) {
    for (size_t i = 0; i < row.logits.size(); i += 2) {
      row.logits[i] = -std::numeric_limits<float>::infinity();
    }
    row.logits[3] = 1e30f;
  }
  rows[1].params.top_p = 1.0f;
  rows[2].params.top_k = 600;
  rows[3].logits[3] = -1e30f;
  ExpectSame(rows);
}

TEST_F(DeviceSamplerTest, PenaltiesBiasAndSuppression) {
  SamplingParams params{.temperature = 1.0f, .top_k = 20};
  params.repetition_penalty = 1.3f;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{7, 4.0f}, {9, -100.0f}};
  params.suppressed_until_min_tokens = {7, 8};
  params.min_tokens = 500;
  std::vector<Row> rows = Rows(6, 300, params);
  for (Row& row : rows) {
    row.prompt = {1, 2, 3, 3, 250};
    row.output = {3, 7, 7, 7, 42};
  }
  rows[0].params.temperature = 0;
  rows[1].params.top_logprobs = 4;
  ExpectSame(rows);
}

TEST_F(DeviceSamplerTest, Logprobs) {
  std::vector<Row> rows = Rows(5, 900, {.temperature = 1.0f});
  rows[0].params.top_logprobs = 0;
  rows[1].params.top_logprobs = 20;
  rows[2].params.top_logprobs = 3;
  rows[2].given = 17;
  rows[3].given = 0;
  rows[3].params.top_logprobs = 0;
  ExpectSame(rows);
  std::vector<Row> few = Rows(1, 3, {.temperature = 1.0f});
  few[0].params.top_logprobs = 20;
  ExpectSame(few);
}

// Rows that cannot be sampled, among others that can: each has its own answer, as on the host.
TEST_F(DeviceSamplerTest, WhatCannotBeSampledHarmsNoOtherRow) {
  for (const SamplingParams& params : {SamplingParams{.temperature = 0}, SamplingParams{},
                                       SamplingParams{.top_k = 5}, SamplingParams{.top_p = 0.5f}}) {
    std::vector<Row> rows = Rows(9, 50, params);
    rows[1].logits[20] = std::nanf("");
    rows[3].logits[0] = std::numeric_limits<float>::infinity();
    rows[5].params.min_tokens = 2000;
    for (int32_t id = 0; id < 50; ++id) {
      rows[5].params.suppressed_until_min_tokens.push_back(id);
      rows[6].params.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
    }
    rows[7].logits[49] = std::nanf("");
    rows[7].given = 3;
    ExpectSame(rows);
    const auto answers = OnDevice(rows);
    ASSERT_TRUE(answers.ok()) << answers.status();
    EXPECT_EQ((*answers)[1].status().message(), "logits hold NaN or infinity");
    EXPECT_EQ((*answers)[7].status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ((*answers)[5].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ((*answers)[6].status().code(), absl::StatusCode::kInvalidArgument);
    for (const size_t i : {0, 2, 4, 8}) EXPECT_TRUE((*answers)[i].ok()) << i;
  }
}

}  // namespace
}  // namespace skein::engine
