#include "services/skeinctl/planning/offline.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/command.h"
#include "services/skeinctl/planning/offline_inputs.h"
#include "services/skeinctl/planning/simulate.h"

namespace skein::services {
namespace {

int Exit(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"simulate", "--offline"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const Command command = MakeCommand<SimulateFlags>("simulate", RunSimulate);
  return command.run(static_cast<int>(argv.size()), argv.data());
}
OfflineFlags Small() {
  OfflineFlags flags;
  flags.load = {.requests = 60, .prompt_mean = 100, .output_mean = 50};
  return flags;
}
std::string ErrorOf(const OfflineFlags& flags, int64_t devices = 8) {
  return std::string(CompareOffline(flags, devices).status().message());
}

TEST(Offline, PrintsALineForEachStrategyAndLayout) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Exit({"--device", "h20", "--tp", "2", "--requests", "60", "--prompt-tokens-mean", "100",
                  "--output-tokens-mean", "50", "--format", "json"}),
            0);
  std::istringstream lines(testing::internal::GetCapturedStdout());
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]["strategy"], std::vector<std::string>({"full", "was", "cas", "sidp"})[i]);
    EXPECT_EQ(rows[i]["dp"], 4);
    EXPECT_GT(rows[i]["job_s"], 0);
    EXPECT_GT(rows[i]["step_s"], 0);
  }
  EXPECT_NEAR(rows[3]["kv_tokens"].get<double>() / rows[0]["kv_tokens"].get<double>(), 1.7, 0.05);
  EXPECT_GT(rows[3]["kv_tokens_tile_slots"], rows[3]["kv_tokens_layer_slots"]);
  EXPECT_GT(rows[3]["threshold_batch"], 1);
  EXPECT_FALSE(rows[0].contains("threshold_batch"));
  EXPECT_EQ(rows[2]["cas_share"], 1);
}

TEST(Offline, SaysWhyThereIsNoJob) {
  OfflineFlags flags = Small();
  flags.device = "h20";
  flags.tp = 1;
  const auto comparison = CompareOffline(flags, 8);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  const std::string table = OfflineTable(*comparison);
  EXPECT_NE(table.find("no job: full, TP 1, DP 8: usable_bytes: 1.296e+11"), std::string::npos)
      << table;
  EXPECT_NE(table.find("simulated: llama-3.1-70b on h20, link 450 GB/s"), std::string::npos);
}

TEST(Offline, TpAloneHasOneRow) {
  OfflineFlags flags = Small();
  flags.tp = 8;
  const auto comparison = CompareOffline(flags, 8);
  ASSERT_TRUE(comparison.ok());
  ASSERT_EQ(comparison->rows.size(), 1u);
  EXPECT_EQ(comparison->rows[0].dp, 1);
}

TEST(Offline, ReadsAModelsConfig) {
  const std::string path = testing::TempDir() + "/offline_config.json";
  const auto write = [&](const char* dtype) {
    std::ofstream(path) << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-5, "torch_dtype": ")"
                        << dtype << "\"}";
  };
  write("float32");
  const auto model = LoadOfflineModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->shape.layers, 4);
  EXPECT_EQ(model->shape.intermediate, 128);
  EXPECT_EQ(model->shape.head_dim, 16);
  EXPECT_EQ(model->shape.bytes_per_weight, 4);
  write("int3");
  const std::string refused(LoadOfflineModel(path).status().message());
  EXPECT_NE(refused.find("torch_dtype = \"int3\""), std::string::npos) << refused;
}

TEST(Offline, TakesADeviceFromAStepProfile) {
  const auto device = LoadOfflineDevice("llama3-70b-h200-bf16");
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE(device->is_step_profile);
  EXPECT_EQ(device->device.memory_bytes, 113.8e9);
}

TEST(Offline, ErrorsNameFlagAndValue) {
  OfflineFlags flags = Small();
  flags.model = "gpt";
  EXPECT_NE(ErrorOf(flags).find("--model: 'gpt' is neither a built-in model (qwen3-32b"),
            std::string::npos);
  flags = Small();
  flags.device = "a100";
  EXPECT_NE(ErrorOf(flags).find("--device: 'a100' is neither a built-in device (h20"),
            std::string::npos);
  flags = Small();
  flags.link = "rope";
  EXPECT_NE(ErrorOf(flags).find("--link: 'rope' is neither one of nvlink4"), std::string::npos);
  flags = Small();
  flags.tp = 3;
  EXPECT_NE(ErrorOf(flags).find("--tp: 3 does not divide --devices 8"), std::string::npos);
  flags.tp = 16;
  EXPECT_EQ(ErrorOf(flags, 16), "--tp: 16 is above the model's 8 KV heads");
  EXPECT_EQ(Exit({"--aggregated"}), kUsage);
  EXPECT_EQ(Exit({"--memory-share", "2"}), kUsage);
}

}  // namespace
}  // namespace skein::services
