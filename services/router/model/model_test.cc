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

// Engines refuse a stop token that has no row of the embedding.
TEST(ModelsTest, EndOfTextIdsAreBelowTheVocabulary) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "eos";
  std::filesystem::create_directories(dir);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(std::filesystem::path(kFledgling) / name, dir / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::ofstream(dir / "config.json")
      << R"({"max_position_embeddings": 100, "vocab_size": 5, "eos_token_id": [4, 5, -1]})";
  const auto models = Models::Load({"m=" + dir.string()});
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
