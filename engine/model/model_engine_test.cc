// What the engine promises apart from numbers: its Spec, what it refuses, what it answers.
#include "engine/model/model_engine.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/device/testing/far_device.h"
#include "engine/model/testing/lone_failures.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/reference/reference_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json TinyConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 2},
          {"vocab_size", 50},
          {"max_position_embeddings", 64}};
}

class ModelEngineTest : public ::testing::Test {
 protected:
  ModelEngineTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = ::testing::TempDir() + "/model_engine_" + test->name();
    options_.num_blocks = 20;
    options_.block_tokens = 4;
    options_.max_batch_tokens = 32;
  }

  absl::StatusOr<std::unique_ptr<Engine>> Make() {
    return MakeModelEngine(dir_, std::make_unique<ReferenceOps>(), MakeCpuDevice(), options_);
  }
  absl::StatusOr<std::unique_ptr<Engine>> MakeOf(const json& config) {
    const absl::Status written =
        tools::WriteRandomCheckpoint(dir_, config, {.dtype = DType::kF32, .seed = 3, .shards = 1});
    EXPECT_TRUE(written.ok()) << written;
    return Make();
  }
  std::unique_ptr<Engine> MakeTiny() {
    auto engine = MakeOf(TinyConfig());
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  // Config as written but read as if it were `patch`ed: weights and config then disagree.
  std::string MessageWhenPatched(const json& patch) {
    json config = TinyConfig();
    EXPECT_TRUE(MakeOf(config).ok());
    config.update(patch);
    std::ofstream(dir_ + "/config.json") << config;
    const auto engine = Make();
    return engine.ok() ? "accepted" : std::string(engine.status().message());
  }

  std::string dir_;
  ModelEngineOptions options_;
};

TEST_F(ModelEngineTest, SpecAndRegions) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  const EngineSpec& spec = engine->Spec();
  EXPECT_EQ(spec.model_hash.size(), 64u);
  EXPECT_EQ(spec.device, "cpu");
  EXPECT_EQ(spec.vocab_size, 50);
  EXPECT_EQ(spec.max_positions, 64);
  // Embedding and head, three layers of q k v o, gate up down and two norms, the last norm.
  EXPECT_EQ(spec.num_parameters, 2 * 50 * 16 + 3 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16);
  const KvSpec expected{3, 2, 8, 4, DType::kF32, 20};
  EXPECT_EQ(spec.kv, expected);
  ASSERT_EQ(engine->KvRegions().size(), 3u);
  for (const KvRegion& region : engine->KvRegions()) {
    EXPECT_EQ(region.bytes, 20 * spec.kv.BlockBytes());
    EXPECT_NE(region.base, nullptr);
  }
}

TEST(DefaultRingSegmentBytes, IsLargerOnADevice) {
  EXPECT_EQ(DefaultRingSegmentBytes(*MakeCpuDevice()), 4 << 20);
  EXPECT_EQ(DefaultRingSegmentBytes(FarDevice(4096)), 64 << 20);
}

// Counts products of f32 rows with 16-bit weights, which are slow.
class NotingOps final : public ReferenceOps {
 public:
  explicit NotingOps(int* widened) : widened_(widened) {}
  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    for (const Product& product : products) {
      if (x.dtype == DType::kF32 && product.w.dtype != DType::kF32) ++*widened_;
    }
    ReferenceOps::MatMuls(x, products);
  }

 private:
  int* const widened_;
};

TEST_F(ModelEngineTest, ATensorThatMakesProductsSlowerIsNamed) {
  std::vector<std::string> warnings;
  int widened = 0;
  options_.warn = [&](const std::string& what) { warnings.push_back(what); };
  const auto run = [&](const std::string& dir) {
    warnings.clear();
    widened = 0;
    auto engine =
        MakeModelEngine(dir, std::make_unique<NotingOps>(&widened), MakeCpuDevice(), options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    GreedyRun greedy{.prompt = {1, 2, 3}, .tokens_wanted = 2};
    RunTogether(**engine, {&greedy});
  };
  const auto write = [&](DType dtype) {
    const absl::Status written =
        tools::WriteRandomCheckpoint(dir_, TinyConfig(), {.dtype = dtype, .seed = 3, .shards = 1});
    ASSERT_TRUE(written.ok()) << written;
  };
  write(DType::kF32);
  run(dir_);
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  write(DType::kF16);
  run(dir_);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("\"model.layers.0.self_attn.q_proj.weight\" is f16"));
  write(DType::kBF16);
  run(dir_);
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  EXPECT_EQ(widened, 0);

  const auto mixed = [&](const std::string& wide) {
    WidenCheckpoint(dir_, dir_ + "_mixed", [&](const std::string& name) { return name == wide; });
    run(dir_ + "_mixed");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_THAT(warnings[0], HasSubstr("\"" + wide + "\" is f32"));
  };
  mixed("lm_head.weight");  // the layers' products are those of bf16
  EXPECT_EQ(widened, 0);
  mixed("model.layers.1.mlp.up_proj.weight");
  EXPECT_GT(widened, 0);
}

TEST_F(ModelEngineTest, OptionsShapeThePool) {
  options_.num_blocks = 0;
  options_.kv_dtype = DType::kBF16;
  options_.kv_bytes = 10'000;  // a block of three layers is 3 · 2 · 2 · 4 · 8 · 2 = 768 bytes
  const std::unique_ptr<Engine> engine = MakeTiny();
  EXPECT_EQ(engine->Spec().kv.num_blocks, 13);
  EXPECT_EQ(engine->Spec().kv.dtype, DType::kBF16);
  EXPECT_EQ(engine->Spec().max_positions, 13 * 4);  // what the pool holds
  options_.max_positions = 10;
  EXPECT_EQ((*Make())->Spec().max_positions, 10);
}

TEST_F(ModelEngineTest, BadOptionsAreNamed) {
  ASSERT_NE(MakeTiny(), nullptr);
  const auto message = [&](auto edit) {
    const ModelEngineOptions good = options_;
    edit(options_);
    const auto engine = Make();
    options_ = good;
    return engine.ok() ? "accepted" : std::string(engine.status().message());
  };
  EXPECT_THAT(message([](auto& o) { o.num_blocks = 0; }), HasSubstr("num_blocks = 0"));
  EXPECT_THAT(message([](auto& o) { o.num_blocks = -1; }), HasSubstr("num_blocks = -1"));
  EXPECT_THAT(message([](auto& o) { o.num_blocks = int64_t{1} << 60; }), HasSubstr("num_blocks"));
  EXPECT_THAT(message([](auto& o) { o.block_tokens = 0; }), HasSubstr("block_tokens = 0"));
  EXPECT_THAT(message([](auto& o) { o.max_batch_tokens = 0; }), HasSubstr("max_batch_tokens"));
  EXPECT_THAT(message([](auto& o) {
                o.num_blocks = 0;
                o.kv_bytes = 100;
              }),
              HasSubstr("kv_bytes = 100"));
}

TEST_F(ModelEngineTest, ACheckpointThatDisagreesWithItsConfigIsNamed) {
  EXPECT_THAT(MessageWhenPatched({{"vocab_size", 51}}),
              HasSubstr("tensor \"model.embed_tokens.weight\": shape [50, 16], expected [51, 16]"));
  EXPECT_THAT(MessageWhenPatched({{"num_hidden_layers", 4}}),
              HasSubstr("tensor \"model.layers.3.input_layernorm.weight\": missing"));
  EXPECT_THAT(MessageWhenPatched({{"num_hidden_layers", 2}}),
              HasSubstr("not part of a LlamaForCausalLM"));
  EXPECT_THAT(MessageWhenPatched({{"attention_bias", true}}), HasSubstr("q_proj.bias\": missing"));
  EXPECT_THAT(MessageWhenPatched({{"num_key_value_heads", 1}}),
              HasSubstr("k_proj.weight\": shape [16, 16], expected [8, 16]"));
  EXPECT_EQ(MessageWhenPatched({{"tie_word_embeddings", true}}), "accepted");  // lm_head unused
  std::filesystem::remove(dir_ + "/config.json");
  EXPECT_EQ(Make().status().code(), absl::StatusCode::kNotFound);
}

// A step of one sequence that is valid until a test edits it.
struct OneStep {
  std::vector<int32_t> tokens = {1, 2, 3};
  std::vector<int32_t> blocks = {7, 5};
  std::vector<int32_t> next;
  std::vector<int32_t> history;
  SamplingParams sampling;
  SequenceStep step;

  SequenceStep Build() {
    step.tokens = tokens;
    step.block_table = blocks;
    step.next_tokens = next;
    step.output = history;
    step.sampling = &sampling;
    return step;
  }
};

TEST_F(ModelEngineTest, RefusalsNameTheField) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  const auto message = [&](auto edit) {
    OneStep good, edited;
    edit(edited);
    const SequenceStep steps[] = {good.Build(), edited.Build()};
    std::vector<SequenceResult> results;
    const absl::Status status = engine->Step(steps, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(results[0].status.ok()) << results[0].status;
    EXPECT_EQ(results[1].status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(results[1].status.message());
  };
  EXPECT_EQ(message([](auto& s) { s.tokens = {}; }), "tokens: empty");
  EXPECT_THAT(message([](auto& s) { s.tokens[2] = 50; }), HasSubstr("tokens[2] = 50"));
  EXPECT_THAT(message([](auto& s) { s.tokens[0] = -1; }), HasSubstr("tokens[0] = -1"));
  EXPECT_THAT(message([](auto& s) { s.step.position = 62; }), HasSubstr("position = 62"));
  EXPECT_THAT(message([](auto& s) { s.step.position = -1; }), HasSubstr("position = -1"));
  EXPECT_THAT(message([](auto& s) { s.step.position = std::numeric_limits<int64_t>::max(); }),
              HasSubstr("position = "));
  EXPECT_THAT(message([](auto& s) { s.step.position = 6; }), HasSubstr("block_table: 2 blocks, 3"));
  EXPECT_THAT(message([](auto& s) { s.blocks[0] = 20; }), HasSubstr("block_table[0] = 20"));
  EXPECT_THAT(message([](auto& s) { s.step.layout.tp = 2; }), HasSubstr("layout.tp = 2"));
  EXPECT_THAT(message([](auto& s) { s.sampling.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](auto& s) { s.next = {1, 2}; }), HasSubstr("next_tokens: 2 ids"));
  EXPECT_THAT(message([](auto& s) { s.next = {1, 2, 50}; }), HasSubstr("next_tokens[2] = 50"));
  EXPECT_THAT(message([](auto& s) { s.history = {99}; }), HasSubstr("output[0] = 99"));
  EXPECT_THAT(message([](auto& s) {
                s.tokens.assign(40, 1);
                s.blocks.assign(10, 1);
              }),
              HasSubstr("tokens: 40 tokens in one step, at most 32"));
  SequenceStep unsampled = OneStep().Build();
  const std::vector<int32_t> tokens = {1}, blocks = {0};
  unsampled.tokens = tokens;
  unsampled.block_table = blocks;
  unsampled.next_tokens = unsampled.output = {};
  unsampled.sampling = nullptr;
  unsampled.sample = true;
  std::vector<SequenceResult> results;
  ASSERT_TRUE(engine->Step({&unsampled, 1}, nullptr, &results).ok());
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("sampling: required"));
}

TEST_F(ModelEngineTest, WhatIsWrongWithTheWholeStepRunsNothing) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  int layers_run = 0;
  std::vector<SequenceResult> results;
  const auto message = [&](std::span<const SequenceStep> steps) {
    StepProgress progress([&](int) { ++layers_run; });
    const absl::Status status = engine->Step(steps, &progress, &results);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message({}), "sequences: empty");
  std::vector<OneStep> many(11);
  std::vector<SequenceStep> steps;
  for (OneStep& one : many) steps.push_back(one.Build());
  EXPECT_EQ(message(steps), "sequences: 33 tokens in one step, at most 32");
  EXPECT_EQ(layers_run, 0);
}

TEST_F(ModelEngineTest, FailuresStayAlone) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  ExpectFailuresStayAlone(*engine, {.spoil_block = [&](int32_t block) {
    const int64_t bytes = engine->Spec().kv.BlockBytes();
    for (const KvRegion& region : engine->KvRegions()) {
      std::memset(static_cast<std::byte*>(region.base) + block * bytes, 0xff,
                  static_cast<size_t>(bytes));
    }
  }});
}

TEST_F(ModelEngineTest, LayersAreDoneInOrderWithTheirKvWritten) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  OneStep one;
  const SequenceStep step = one.Build();
  std::vector<int> layers;
  std::vector<SequenceResult> results;
  StepProgress progress([&](int layer) {
    layers.push_back(layer);
    EXPECT_EQ(progress.LayersWritten(), layer + 1);
    const KvSpec& kv = engine->Spec().kv;
    for (int later = 0; later < kv.num_layers; ++later) {
      const auto* block = static_cast<const float*>(engine->KvRegions()[later].base) +
                          7 * kv.BlockBytes() / static_cast<int64_t>(sizeof(float));
      EXPECT_EQ(block[0] != 0.0f, later <= layer) << later;
    }
  });
  ASSERT_TRUE(engine->Step({&step, 1}, &progress, &results).ok());
  EXPECT_THAT(layers, ElementsAre(0, 1, 2));
}

TEST_F(ModelEngineTest, AnswersWhatWasAsked) {
  const std::unique_ptr<Engine> engine = MakeTiny();
  OneStep plain, scored, sampled;
  scored.next = {-1, 9, 10};
  scored.sampling.top_logprobs = 2;
  scored.step.want_logits = true;
  sampled.step.sample = true;
  sampled.sampling.top_logprobs = 1;
  sampled.sampling.temperature = 0.0f;
  scored.blocks = {0};
  sampled.blocks = {1};
  const SequenceStep steps[] = {plain.Build(), scored.Build(), sampled.Build()};
  std::vector<SequenceResult> results;
  ASSERT_TRUE(engine->Step(steps, nullptr, &results).ok());
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].prompt_logprobs.empty() && results[0].logits.empty());

  const std::vector<float>& logits = results[1].logits;
  ASSERT_EQ(logits.size(), 50u);
  ASSERT_EQ(results[1].prompt_logprobs.size(), 3u);
  EXPECT_EQ(results[1].prompt_logprobs[0].token, -1);
  const SampledToken& last = results[1].prompt_logprobs[2];
  EXPECT_EQ(last.token, 10);
  EXPECT_EQ(last.top.size(), 2u);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(double{logit});
  EXPECT_NEAR(last.logprob, logits[10] - std::log(total), 1e-5);

  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_EQ(results[2].sampled.token, best);  // the same tokens were run
  ASSERT_EQ(results[2].sampled.top.size(), 1u);
  EXPECT_EQ(results[2].sampled.top[0].token, best);
}

// More rows than are computed at a time.
TEST_F(ModelEngineTest, LogitsOfManyRows) {
  options_.max_batch_tokens = 200;
  options_.num_blocks = 60;
  const std::unique_ptr<Engine> engine = MakeTiny();
  std::vector<int32_t> ids;
  for (int i = 0; i < 60; ++i) ids.push_back(i % 50);
  NllRun alone{.ids = ids}, first{.ids = ids}, second{.ids = ids}, third{.ids = ids};
  ScoreTogether(*engine, {&alone});
  ScoreTogether(*engine, {&first, &second, &third});
  EXPECT_NEAR(first.nll, alone.nll, 1e-6);
  EXPECT_NEAR(third.nll, alone.nll, 1e-6);
}

TEST_F(ModelEngineTest, BrokenWeightsAreAnErrorNotAToken) {
  json config = TinyConfig();
  ASSERT_TRUE(MakeOf(config).ok());
  std::fstream file(dir_ + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);  // the last element of the last norm
  file.write("\xff\xff\xff\xff", 4);
  file.close();
  const auto engine = Make();
  ASSERT_TRUE(engine.ok()) << engine.status();
  OneStep one;
  one.step.sample = true;
  const SequenceStep step = one.Build();
  std::vector<SequenceResult> results;
  ASSERT_TRUE((*engine)->Step({&step, 1}, nullptr, &results).ok());
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace skein::engine
