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
  EXPECT_FALSE(config->max_new_tokens.has_value());
}

TEST(GenerationConfigTest, ValuesHoldWhateverDoSampleSays) {
  const auto config = ParseGenerationConfig(
      R"({"do_sample": false, "temperature": 0.9, "top_k": -1, "min_p": 0.05,
          "repetition_penalty": 1.1, "max_new_tokens": 512})",
      10);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->temperature, 0.9f);
  EXPECT_EQ(config->top_k, 0);  // off
  EXPECT_EQ(config->min_p, 0.05f);
  EXPECT_EQ(config->repetition_penalty, 1.1f);
  EXPECT_EQ(config->max_new_tokens, 512);
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
