#include "services/worker/engine/emulated_device.h"

#include <chrono>
#include <fstream>

#include "engine/device/cpu_device.h"
#include "engine/stepping/testing/run_plan.h"
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

absl::StatusOr<std::unique_ptr<engine::StepEngine>> Make(const WorkerOptions& options) {
  return MakeEmulatedEngine(options, engine::MakeCpuDevice());
}

// All of a prompt, which is within one block.
engine::PlannedSequence Prefill(engine::StepEngine* engine, std::vector<int32_t> prompt,
                                BlockId block) {
  const auto count = static_cast<int64_t>(prompt.size());
  const auto sequence =
      engine->Admit({.prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt)),
                     .sampling = std::make_shared<const engine::SamplingParams>()});
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  return {.sequence = *sequence, .count = count, .blocks = {block}};
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
  engine::StepPlan plan;
  plan.sequences = {Prefill(engine->get(), {1, 2, 3}, {0})};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(RunPlan(engine->get(), std::move(plan)).status.ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(53'000));
}

TEST(EmulatedDevice, TheSequenceWithTheNanTokenFailsAlone) {
  WorkerOptions options = Options();
  options.emulated_nan_token = 7;
  const auto engine = Make(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine::StepPlan plan;
  plan.sequences = {Prefill(engine->get(), {1, 2, 7}, {1}), Prefill(engine->get(), {1, 2, 3}, {2})};
  const engine::CompletedStep completed = RunPlan(engine->get(), std::move(plan));
  ASSERT_TRUE(completed.status.ok()) << completed.status;
  const std::vector<engine::SequenceResult>& results = completed.results;
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status, absl::InternalError("logits hold NaN or infinity"));
  EXPECT_TRUE(results[1].status.ok()) << results[1].status;
}

}  // namespace
}  // namespace skein::services
