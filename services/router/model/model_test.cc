#include "services/router/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace skein::services {
namespace {

constexpr char kFledgling[] = "deploy/models/fledgling";

TEST(ModelsTest, GenerationConfigGivesTheDefaults) {
  const auto models = Models::Load({std::string("f=") + kFledgling});
  ASSERT_TRUE(models.ok()) << models.status();
  const ServedModel* model = models->Find("f");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model, models->Only());
  EXPECT_EQ(model->max_new_tokens, 512);
  EXPECT_EQ(model->defaults.temperature, 1);  // do_sample is not looked at
  EXPECT_EQ(model->vocab_size, 2048);
}

// A model "m" with fledgling's tokenizer and this config.json.
absl::StatusOr<Models> LoadWith(const std::string& name, const std::string& config) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::create_directories(dir);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(std::filesystem::path(kFledgling) / file, dir / file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::ofstream(dir / "config.json") << config;
  return Models::Load({"m=" + dir.string()});
}

// The limit of a request is the engine's: YaRN extends the length that the file names.
TEST(ModelsTest, YarnExtendsThePositions) {
  const auto models = LoadWith(
      "yarn", R"({"max_position_embeddings": 32768, "vocab_size": 2048, "rope_scaling": {"type": )"
              R"("yarn", "factor": 4.0, "original_max_position_embeddings": 32768}})");
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->Find("m")->max_positions, 131072);
  const auto refused =
      LoadWith("dynamic", R"({"max_position_embeddings": 32768, "vocab_size": 2048, )"
                          R"("rope_scaling": {"type": "dynamic", "factor": 4.0}})");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->Find("m")->max_positions, 32768);
}

// Engines refuse a stop token that has no row of the embedding.
TEST(ModelsTest, EndOfTextIdsAreBelowTheVocabulary) {
  const auto models = LoadWith(
      "eos", R"({"max_position_embeddings": 100, "vocab_size": 5, "eos_token_id": [4, 5, -1]})");
  ASSERT_TRUE(models.ok()) << models.status();
  const std::vector<int32_t>& eos = models->Find("m")->eos_ids;
  EXPECT_EQ(std::count(eos.begin(), eos.end(), 4), 1);
  for (const int32_t id : eos) EXPECT_LT(id, 5);
  EXPECT_EQ(std::count(eos.begin(), eos.end(), -1), 0);
}

TEST(ModelsTest, EveryProblemIsReported) {
  const auto models = Models::Load({"/nowhere", std::string("=") + kFledgling});
  ASSERT_FALSE(models.ok());
  const std::string message(models.status().message());
  EXPECT_NE(message.find("--model: '/nowhere': "), std::string::npos) << message;
  EXPECT_NE(message.find("the name is empty"), std::string::npos) << message;
}

}  // namespace
}  // namespace skein::services
