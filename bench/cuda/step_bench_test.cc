// The bench's own arithmetic, and its steps on a tiny model on the CPU.
#include "bench/cuda/step_bench.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::bench {
namespace {

engine::ModelConfig ConfigOf(const std::string& name) {
  return engine::ParseModelConfig(tools::NamedConfig(name).dump()).value();
}

// The published sizes: 8.03 B parameters of which the embedding's 0.53 B are not read; 0.6 B of
// which the tied embedding is read as lm_head.
TEST(StepCosts, OfTheBenchedShapes) {
  const StepCosts llama = CostsOf(ConfigOf("llama-3-8b"));
  EXPECT_NEAR(llama.weight_bytes / 2, 7.50e9, 0.01e9);
  EXPECT_EQ(llama.kv_token_bytes, 128 << 10);
  EXPECT_NEAR(llama.layer_flops / 2, 6.98e9, 0.01e9);
  EXPECT_EQ(llama.attention_flops, 32 * 4 * 4096);
  const StepCosts qwen = CostsOf(ConfigOf("qwen3-0.6b"));
  EXPECT_NEAR(qwen.weight_bytes / 2, 0.596e9, 0.001e9);
  EXPECT_EQ(qwen.kv_token_bytes, 112 << 10);
  EXPECT_EQ(qwen.DecodeBytes(8, 100), qwen.weight_bytes + 800 * qwen.kv_token_bytes);
  EXPECT_EQ(qwen.PrefillFlops(1), qwen.layer_flops + qwen.head_flops + qwen.attention_flops);
}

class StepBenchOnCpu : public testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json config = tools::NamedConfig("0.1b");
    config.update({{"hidden_size", 64},
                   {"intermediate_size", 96},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"vocab_size", 200}});
    dir_ = testing::TempDir() + "/step_bench";
    ASSERT_TRUE(tools::WriteRandomCheckpoint(dir_, config, {}).ok());
    engine::ModelEngineOptions options;
    options.num_blocks = 40;
    options.max_batch_tokens = 48;
    engine_ = engine::MakeModelEngine(dir_, engine::MakeCpuOps({.threads = 1}).value(),
                                      engine::MakeCpuDevice(), options)
                  .value();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(StepBenchOnCpu, RunsPromptsInChunksAndBatchesOfThem) {
  StepBench bench(engine_.get(), 48);
  const auto prefill = bench.Prefill(130);
  ASSERT_TRUE(prefill.ok()) << prefill.status();
  EXPECT_GT(*prefill, 0);
  ASSERT_TRUE(bench.StartDecode(5, 33, 20).ok());
  for (int i = 0; i < 20; ++i) {
    const auto step = bench.DecodeStep();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_GT(*step, 0);
  }
}

TEST_F(StepBenchOnCpu, SaysWhatHasNoRoom) {
  StepBench bench(engine_.get(), 48);
  EXPECT_EQ(bench.StartDecode(11, 60, 4).message(),
            "the engine has no room for 11 sequences of 64 tokens");
}

}  // namespace
}  // namespace skein::bench
