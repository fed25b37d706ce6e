#include "engine/emulated/emulated_engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/model/testing/lone_failures.h"

namespace skein::engine {
namespace {

const EmulatedOptions kOptions{
    .kv =
        {{.num_layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4, .dtype = DType::kBF16},
         8},
    .vocab_size = 100,
    .max_positions = 64};

class EmulatedEngineTest : public ::testing::Test {
 protected:
  int32_t Step(std::span<const int32_t> tokens, int64_t position, std::vector<int32_t> blocks,
               uint64_t index = 0) {
    return Run(tokens, position, std::move(blocks), index, {}).sampled.token;
  }
  SequenceResult Run(std::span<const int32_t> tokens, int64_t position, std::vector<int32_t> blocks,
                     uint64_t index, std::span<const int32_t> output,
                     std::span<const int32_t> next_tokens = {}) {
    const SequenceStep step{.tokens = tokens,
                            .position = position,
                            .block_table = blocks,
                            .layout = {},
                            .sample = true,
                            .sampling = &sampling_,
                            .token_index = index,
                            .prompt = prompt_,
                            .output = output,
                            .next_tokens = next_tokens};
    std::vector<SequenceResult> results;
    const absl::Status status = engine_->Step({&step, 1}, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    return results[0];
  }

  std::unique_ptr<EmulatedEngine> engine_ = *EmulatedEngine::Create(kOptions);
  SamplingParams sampling_;
  const std::vector<int32_t> prompt_ = {5, 6, 7, 8, 9, 10};
};

TEST_F(EmulatedEngineTest, SamplesTheContinuationInOneGoOrInSlicesFromAnyBlocks) {
  const std::vector<int32_t> expected = EmulatedContinuation(kOptions, prompt_, 4);
  EXPECT_EQ(Step(prompt_, 0, {3, 1}), expected[0]);
  const std::span<const int32_t> prompt = prompt_;
  Step(prompt.first(3), 0, {0, 7, 5});
  EXPECT_EQ(Step(prompt.subspan(3), 3, {0, 7, 5}), expected[0]);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Step({&expected[i], 1}, 6 + i, {0, 7, 5}, i + 1), expected[i + 1]);
  }
}

// After a handoff, too, the engine is told of the output so far.
TEST_F(EmulatedEngineTest, SamplesAndScoresAsTheAnswerSays) {
  sampling_ = {.temperature = 0.9f,
               .repetition_penalty = 1.2f,
               .frequency_penalty = 0.3f,
               .logit_bias = {{3, 1.5f}},
               .seed = 12,
               .top_logprobs = 2};
  const std::vector<SampledToken> expected = EmulatedAnswer(kOptions, prompt_, 5, sampling_);
  const std::vector<SampledToken> scores = EmulatedPromptLogprobs(kOptions, prompt_, 2);
  const auto expect = [](const SampledToken& actual, const SampledToken& wanted) {
    EXPECT_EQ(actual.token, wanted.token);
    EXPECT_EQ(actual.logprob, wanted.logprob);
    ASSERT_EQ(actual.top.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(actual.top[i].token, wanted.top[i].token);
      EXPECT_EQ(actual.top[i].logprob, wanted.top[i].logprob);
    }
  };
  const std::vector<int32_t> blocks = {2, 0, 5}, next = {9, 10, -1};
  const std::span<const int32_t> prompt = prompt_;
  Run(prompt.first(3), 0, blocks, 0, {});
  const SequenceResult first = Run(prompt.subspan(3), 3, blocks, 0, {}, next);
  ASSERT_EQ(first.prompt_logprobs.size(), 3u);
  expect(first.prompt_logprobs[0], scores[3]);
  expect(first.prompt_logprobs[1], scores[4]);
  EXPECT_EQ(first.prompt_logprobs[2].token, -1);
  expect(first.sampled, expected[0]);
  std::vector<int32_t> output = {first.sampled.token};
  while (output.size() < 5) {
    const std::vector<int32_t> last = {output.back()};
    const auto position = static_cast<int64_t>(prompt_.size() + output.size() - 1);
    const SequenceResult result = Run(last, position, blocks, output.size(), output);
    expect(result.sampled, expected[output.size()]);
    output.push_back(result.sampled.token);
  }
}

TEST_F(EmulatedEngineTest, AnyWrongByteOfAnyBlockChangesTheOutput) {
  const std::vector<int32_t> expected = EmulatedContinuation(kOptions, prompt_, 2);
  int changed = 0;
  int tried = 0;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (int64_t byte = 0; byte < kOptions.kv.BlockBytes(); byte += 13) {
      Step(prompt_, 0, {2, 4});
      static_cast<uint8_t*>(
          engine_->KvRegions()[layer].base)[2 * kOptions.kv.BlockBytes() + byte] ^= 1;
      ++tried;
      changed += Step({&expected[0], 1}, 6, {2, 4}, 1) != expected[1];
    }
  }
  EXPECT_GE(changed, tried * 9 / 10);  // of 100 token ids one in a hundred may coincide
}

TEST_F(EmulatedEngineTest, AForeignBlockChangesTheOutput) {
  const std::vector<int32_t> expected = EmulatedContinuation(kOptions, prompt_, 2);
  Step(prompt_, 0, {2, 4});
  EXPECT_NE(Step({&expected[0], 1}, 6, {4, 2}, 1), expected[1]);
}

TEST_F(EmulatedEngineTest, LayersAreDoneInOrderAndAlreadyWritten) {
  std::vector<int32_t> blocks = {0, 1};
  const SequenceStep step{.tokens = prompt_,
                          .position = 0,
                          .block_table = blocks,
                          .layout = {},
                          .sampling = nullptr,
                          .prompt = {},
                          .output = {},
                          .next_tokens = {}};
  std::vector<int> layers;
  std::vector<SequenceResult> results;
  StepProgress progress([&](int layer) {
    layers.push_back(layer);
    EXPECT_EQ(progress.LayersWritten(), layer + 1);
    uint64_t word = 0;
    std::memcpy(&word, engine_->KvRegions()[layer].base, sizeof(word));
    EXPECT_NE(word, 0u);
  });
  ASSERT_TRUE(engine_->Step({&step, 1}, &progress, &results).ok());
  EXPECT_EQ(layers, (std::vector<int>{0, 1}));
}

// A digest that begins anew with every fourth token: the blocks are as large.
TEST(EmulatedDigestTest, WhatADigestDoesNotFoldCostsNothingAndIsNotSeen) {
  EmulatedOptions options = kOptions;
  options.digest_tokens = 4;
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9, 10};
  const std::vector<int32_t> expected = EmulatedContinuation(options, prompt, 2);
  EXPECT_NE(expected, EmulatedContinuation(kOptions, prompt, 2));
  for (const int32_t wrong : {2, 4}) {
    const auto engine = *EmulatedEngine::Create(options);
    const std::vector<int32_t> blocks = {2, 4};
    SamplingParams greedy;
    SequenceStep step{.tokens = prompt, .block_table = blocks, .layout = {}, .sample = true};
    step.sampling = &greedy;
    step.prompt = prompt;
    std::vector<SequenceResult> results;
    ASSERT_TRUE(engine->Step({&step, 1}, nullptr, &results).ok());
    EXPECT_EQ(results[0].sampled.token, expected[0]);
    static_cast<uint8_t*>(engine->KvRegions()[1].base)[wrong * options.kv.BlockBytes()] ^= 1;
    step.tokens = {expected.data(), 1};
    step.position = 6;
    step.token_index = 1;
    step.output = step.tokens;
    ASSERT_TRUE(engine->Step({&step, 1}, nullptr, &results).ok());
    EXPECT_EQ(results[0].sampled.token == expected[1], wrong == 2);
  }
}

// Steps of two layers and 10 ms: when their layers are over, in ms since the first was launched.
class EmulatedTimeTest : public ::testing::Test {
 protected:
  EmulatedTimeTest() {
    EmulatedOptions options = kOptions;
    options.times.prefill_s = [this](int members, int /*tp*/, int64_t history, int64_t tokens) {
      asked_.push_back({members, history, tokens});
      return 0.01;
    };
    options.times.decode.step_s = 0.02;
    options.times.decode.sequence_s = 0.003;
    options.times.sleep_until = [this](StepProgress::Clock::time_point until) {
      over_.push_back(
          std::chrono::duration_cast<std::chrono::milliseconds>(until - start_).count());
    };
    engine_ = *EmulatedEngine::Create(options);
  }
  void Step(int launched_ms) {
    const std::vector<int32_t> prompt = {5, 6}, blocks = {1};
    const SequenceStep step{.tokens = prompt, .block_table = blocks, .layout = {}};
    StepProgress progress(nullptr, start_ + std::chrono::milliseconds(launched_ms));
    std::vector<SequenceResult> results;
    EXPECT_TRUE(engine_->Step({&step, 1}, &progress, &results).ok());
  }
  std::vector<int64_t> TakeOver() { return std::exchange(over_, {}); }
  static SequenceStep Part(std::span<const int32_t> prompt, std::span<const int32_t> tokens,
                           int64_t position, std::span<const int32_t> blocks) {
    SequenceStep step;
    step.prompt = prompt;
    step.tokens = tokens;
    step.position = position;
    step.block_table = blocks;
    return step;
  }

  const StepProgress::Clock::time_point start_ = StepProgress::Clock::now();
  std::vector<int64_t> over_;
  std::vector<std::vector<int64_t>> asked_;
  std::unique_ptr<EmulatedEngine> engine_;
};

// Prefill by members, history and tokens; decode by the step and by each sequence.
TEST_F(EmulatedTimeTest, AStepTakesTheTimeOfItsParts) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6}, one = {1, 2}, two = {3, 4}, output = {7};
  const SequenceStep prefill = Part(prompt, std::span(prompt).subspan(4), 4, one);
  const std::vector<SequenceStep> steps = {prefill, Part(prompt, output, 6, two),
                                           Part(prompt, output, 6, one)};
  StepProgress progress(nullptr, start_);
  std::vector<SequenceResult> results;
  ASSERT_TRUE(engine_->Step({&prefill, 1}, &progress, &results).ok());
  EXPECT_EQ(asked_, (std::vector<std::vector<int64_t>>{{1, 4, 2}}));
  EXPECT_EQ(TakeOver(), (std::vector<int64_t>{5, 10}));
  ASSERT_TRUE(engine_->Step(steps, &progress, &results).ok());
  EXPECT_EQ(asked_.size(), 2u);
  EXPECT_EQ(TakeOver().back(), 10 + 10 + 20 + 2 * 3);
}

TEST_F(EmulatedTimeTest, AStepTakesItsTimeFromItsLaunch) {
  Step(0);
  EXPECT_EQ(TakeOver(), (std::vector<int64_t>{5, 10}));
  Step(13);  // the device had nothing to do for 3 ms
  EXPECT_EQ(TakeOver(), (std::vector<int64_t>{18, 23}));
}

TEST_F(EmulatedTimeTest, AStepLaunchedAheadTakesItFromTheEndOfTheOneBefore) {
  Step(0);
  Step(2);
  Step(10);
  EXPECT_EQ(TakeOver(), (std::vector<int64_t>{5, 10, 15, 20, 25, 30}));
  Step(31);
  EXPECT_EQ(TakeOver(), (std::vector<int64_t>{36, 41}));
}

TEST_F(EmulatedEngineTest, SuppressedIdsAreNotSampledBeforeMinTokens) {
  sampling_.min_tokens = 1;
  for (int32_t id = 0; id < 100; ++id) {
    if (id != 42) sampling_.suppressed_until_min_tokens.push_back(id);
  }
  EXPECT_EQ(Step(prompt_, 0, {0, 1}), 42);
}

TEST_F(EmulatedEngineTest, ABlockOutsideTheRegionAndMissingSamplingAreRefusedByName) {
  const auto refusal = [&](const SequenceStep& step) {
    std::vector<SequenceResult> results;
    EXPECT_TRUE(engine_->Step({&step, 1}, nullptr, &results).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(results.at(0).status));
    return std::string(results.at(0).status.message());
  };
  SequenceStep step;
  step.tokens = prompt_;
  const std::vector<int32_t> foreign = {0, 8};  // of 8 blocks
  step.block_table = foreign;
  EXPECT_NE(refusal(step).find("block_table[1] = 8"), std::string::npos);
  const std::vector<int32_t> blocks = {0, 1};
  step.block_table = blocks;
  step.sample = true;
  EXPECT_NE(refusal(step).find("sampling"), std::string::npos);
}

TEST(EmulatedEngineFailureTest, FailuresStayAlone) {
  EmulatedOptions options = kOptions;
  options.kv.num_blocks = 16;
  ExpectFailuresStayAlone(**EmulatedEngine::Create(options));
}

// Prompts take their own time; sequences behind their prompt share a step's.
TEST(EmulatedStepSecondsTest, DecodeTakesDecodeTimes) {
  const std::vector<int32_t> prompt = {5, 6, 7}, one = {8};
  const SequenceStep decode{.tokens = one, .position = 3, .prompt = prompt};
  const SequenceStep prefill{.tokens = prompt, .position = 0, .prompt = prompt};
  EmulatedTimes times;
  times.decode = {.step_s = 10, .sequence_s = 1, .kv_token_s = 0.1, .gains = {{2, 2}}};
  times.prefill_s = [](int members, int /*tp*/, int64_t history, int64_t tokens) {
    return 100.0 * members + 1000.0 * static_cast<double>(tokens + history);
  };
  const auto seconds = [&](int sp, int tp, std::vector<SequenceStep> sequences) {
    const std::vector<SequenceResult> results(sequences.size());
    return StepSeconds(times, sp, tp, sequences, results);
  };
  EXPECT_DOUBLE_EQ(seconds(1, 1, {decode, decode}), 10 + 2 + 0.6);
  EXPECT_DOUBLE_EQ(seconds(1, 2, {decode, decode}), 12.6 / 2);
  EXPECT_DOUBLE_EQ(seconds(2, 1, {decode, decode}), 10 + 1 + 0.3);
  EXPECT_DOUBLE_EQ(seconds(1, 2, {prefill}), 3200);
  EXPECT_DOUBLE_EQ(seconds(1, 1, {prefill, decode}), 3100 + 11.3);
  std::vector<SequenceResult> failed(1);
  failed[0].status = absl::InternalError("");
  EXPECT_EQ(StepSeconds(times, 1, 1, {&decode, 1}, failed), 0);
}

TEST(EmulatedEngineCreateTest, NamesABadField) {
  EmulatedOptions options = kOptions;
  options.kv.head_dim = 3;
  EXPECT_EQ(EmulatedEngine::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace skein::engine
