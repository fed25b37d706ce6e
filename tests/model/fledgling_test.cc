// The shipped model through the engine: its tokenizer agrees with the trainer's, and its answers to
// held-out questions are correct (deploy/models/fledgling/eval_sample.json).
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

constexpr char kModelDir[] = "deploy/models/fledgling";
// As many questions as an unoptimised test has time for; the cluster's test uses all.
constexpr int kPromptTokensMax = 600;
constexpr size_t kItemsMax = 16;

class FledglingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(kModelDir) + "/eval_sample.json");
    ASSERT_TRUE(file);
    sample_ = nlohmann::ordered_json::parse(file);
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(kModelDir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Prompt(const nlohmann::ordered_json& messages) const {
    const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Parse(*tokenizer_->chat_template());
    EXPECT_TRUE(chat.ok()) << chat.status();
    const absl::StatusOr<std::string> text =
        chat->Render({{"messages", messages},
                      {"add_generation_prompt", true},
                      {"bos_token", *tokenizer_->bos_token()}});
    EXPECT_TRUE(text.ok()) << text.status();
    return tokenizer_->Encode(*text, {.add_special_tokens = false});
  }

  nlohmann::ordered_json sample_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(FledglingTest, TokenizesAsItsTrainerDoes) {
  for (const nlohmann::ordered_json& vector : sample_.at("tokenizer_vectors")) {
    const std::string text = vector.at("text");
    const std::vector<int32_t> ids = vector.at("ids");
    EXPECT_EQ(tokenizer_->Encode(text, {.add_special_tokens = false}), ids) << text;
    EXPECT_EQ(tokenizer_->Decode(ids, true), text);
  }
}

TEST_F(FledglingTest, AnswersRightAndEnds) {
  ModelEngineOptions options;
  options.num_blocks = 2048;
  absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto});
  ASSERT_TRUE(ops.ok()) << ops.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      MakeModelEngine(kModelDir, *std::move(ops), MakeCpuDevice(), options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  size_t asked = 0;
  for (const nlohmann::ordered_json& item : sample_.at("items")) {
    if (item.at("length") > kPromptTokensMax || asked == kItemsMax) continue;
    const std::string expected = item.at("expected");
    GreedyRun run{.prompt = Prompt(item.at("messages"))};
    const size_t answer_tokens = tokenizer_->Encode(expected, {.add_special_tokens = false}).size();
    run.tokens_wanted = static_cast<int>(answer_tokens) + 1;
    RunTogether(**engine, {&run});
    EXPECT_EQ(tokenizer_->Decode(run.output, true), expected);
    EXPECT_EQ(run.output.back(), tokenizer_->eos_id());
    ++asked;
  }
  EXPECT_GT(asked, 0u);
}

}  // namespace
}  // namespace skein::engine
