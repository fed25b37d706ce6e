#include "engine/checkpoint/generation_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

TEST(GenerationConfigTest, Qwen3) {
  const auto config = ParseGenerationConfig(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
          "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})",
      151936);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_ids, (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(config->temperature, 0.6f);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->top_p, 0.95f);
  EXPECT_FALSE(config->repetition_penalty.has_value());
  EXPECT_FALSE(config->min_p.has_value());
}

TEST(GenerationConfigTest, GreedyModelsSuggestNoSampling) {
  const auto config =
      ParseGenerationConfig(R"({"eos_token_id": 2, "temperature": 0.9, "top_k": 5})", 10);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_ids, (std::vector<int32_t>{2}));
  EXPECT_FALSE(config->temperature.has_value());
  EXPECT_FALSE(config->top_k.has_value());
}

TEST(GenerationConfigTest, RefusedByName) {
  EXPECT_THAT(std::string(ParseGenerationConfig(R"({"top_p": 2})", 10).status().message()),
              HasSubstr("top_p = 2"));
  EXPECT_THAT(std::string(ParseGenerationConfig(R"({"eos_token_id": 10})", 10).status().message()),
              HasSubstr("eos_token_id = 10"));
}

TEST(GenerationConfigTest, FolderWithoutTheFile) {
  const auto config = LoadGenerationConfig(::testing::TempDir() + "/nowhere", 10);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->eos_ids.empty());
}

}  // namespace
}  // namespace skein::engine
