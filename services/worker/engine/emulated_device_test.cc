#include "services/worker/engine/emulated_device.h"

#include <chrono>
#include <fstream>

#include "engine/device/cpu_device.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

WorkerOptions Options() {
  WorkerOptions options;
  options.device = "emulated";
  options.served_name = "m";
  options.emulated_vocab_size = 512;
  options.kv_gib = 1.0 / 1024;
  return options;
}

absl::StatusOr<std::unique_ptr<engine::Engine>> Make(const WorkerOptions& options) {
  return MakeEmulatedEngine(options, engine::MakeCpuDevice());
}

TEST(EmulatedDevice, NeedsNoModel) {
  const auto engine = Make(Options());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const engine::EngineSpec& spec = (*engine)->Spec();
  EXPECT_EQ(spec.vocab_size, 512);
  EXPECT_EQ(spec.max_positions, 262144);
  EXPECT_EQ(spec.kv.BytesPerToken(), 16);
  EXPECT_EQ(spec.kv.num_blocks, (1 << 20) / 256);
}

TEST(EmulatedDevice, TakesVocabularyAndPositionsFromAModelsConfig) {
  WorkerOptions options = Options();
  options.model = ::testing::TempDir();
  options.emulated_vocab_size = 0;
  std::ofstream(options.model + "/config.json")
      << R"({"vocab_size": 99, "max_position_embeddings": 1234})";
  const auto engine = Make(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->Spec().vocab_size, 99);
  EXPECT_EQ((*engine)->Spec().max_positions, 1234);
}

TEST(EmulatedDevice, WhatIsWrongIsNamed) {
  const auto why = [](const WorkerOptions& options) {
    return std::string(Make(options).status().message());
  };
  WorkerOptions bad = Options();
  bad.served_name = "";
  EXPECT_NE(why(bad).find("--served-name"), std::string::npos);
  bad = Options();
  bad.emulated_vocab_size = 0;
  EXPECT_NE(why(bad).find("--emulated-vocab-size"), std::string::npos);
  bad = Options();
  bad.emulated_head_dim = 5;
  EXPECT_NE(why(bad).find("head_dim"), std::string::npos);
  bad = Options();
  bad.kv_gib = 1e-8;
  EXPECT_NE(why(bad).find("--kv-gib"), std::string::npos);
  bad = Options();
  bad.profile = "nowhere.json";
  EXPECT_NE(why(bad).find("nowhere.json"), std::string::npos);
}

TEST(EmulatedDevice, AStepTakesTheProfilesTime) {
  WorkerOptions options = Options();
  options.profile = ::testing::TempDir() + "/profile.json";
  std::ofstream(options.profile) << R"({"sp": {"1": {"a_s": 0.05, "b_s_per_token": 0.001,
      "c_s_per_token2": 0, "d_s_per_token2": 0}}})";
  const auto engine = Make(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<int32_t> prompt = {1, 2, 3}, blocks = {0};
  engine::SequenceStep step;
  step.tokens = step.prompt = prompt;
  step.block_table = blocks;
  std::vector<engine::SequenceResult> results;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE((*engine)->Step({&step, 1}, nullptr, &results).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(53'000));
}

TEST(EmulatedDevice, TheSequenceWithTheNanTokenFailsAlone) {
  WorkerOptions options = Options();
  options.emulated_nan_token = 7;
  const auto engine = Make(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::vector<int32_t> bad = {1, 2, 7}, good = {1, 2, 3}, bad_blocks = {1}, good_blocks = {2};
  std::vector<engine::SequenceStep> steps(2);
  steps[0].tokens = steps[0].prompt = bad;
  steps[0].block_table = bad_blocks;
  steps[1].tokens = steps[1].prompt = good;
  steps[1].block_table = good_blocks;
  std::vector<engine::SequenceResult> results;
  ASSERT_TRUE((*engine)->Step(steps, nullptr, &results).ok());
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status, absl::InternalError("logits hold NaN or infinity"));
  EXPECT_TRUE(results[1].status.ok()) << results[1].status;
}

}  // namespace
}  // namespace skein::services
