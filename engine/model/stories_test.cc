// The golden continuation of ../shared/models/stories260K, through the whole engine.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

constexpr int32_t kBos = 1;

class StoriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("SKEIN_SHARED");
    if (shared == nullptr || *shared == '\0') GTEST_SKIP() << "needs ../shared";
    const std::string dir = std::string(shared) + "/models/stories260K";
    std::ifstream file(dir + "/golden_greedy.json");
    if (!file) GTEST_SKIP() << "needs ../shared";
    const nlohmann::json golden = nlohmann::json::parse(file);
    ids_ = golden.at("greedy_ids").get<std::vector<int32_t>>();
    logits_ = golden.at("logits_pos0").get<std::vector<double>>();
    ModelEngineOptions options;
    options.num_blocks = 33 * 13;
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        MakeModelEngine(dir, std::make_unique<ReferenceOps>(), MakeCpuDevice(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // The first `count` ids of the story, BOS first.
  std::vector<int32_t> Prompt(size_t count) const {
    std::vector<int32_t> prompt = {kBos};
    prompt.insert(prompt.end(), ids_.begin(),
                  ids_.begin() + static_cast<std::ptrdiff_t>(count) - 1);
    return prompt;
  }
  std::vector<int32_t> Continuation(size_t count) const {
    return {ids_.begin() + static_cast<std::ptrdiff_t>(count) - 1, ids_.end()};
  }

  std::vector<int32_t> ids_;
  std::vector<double> logits_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(StoriesTest, LogitsOfTheFirstPosition) {
  const std::vector<float> logits = LogitsAfter(*engine_, {kBos});
  ASSERT_EQ(logits.size(), logits_.size());
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], logits_[i], 1e-4) << i;
}

TEST_F(StoriesTest, GreedyFromOneToken) {
  GreedyRun run{.prompt = Prompt(1), .tokens_wanted = 200};
  RunTogether(*engine_, {&run});
  EXPECT_EQ(run.output, Continuation(1));
}

TEST_F(StoriesTest, PrefilledWhole) {
  GreedyRun run{.prompt = Prompt(120), .tokens_wanted = 81};
  RunTogether(*engine_, {&run});
  EXPECT_EQ(run.output, Continuation(120));
}

TEST_F(StoriesTest, PrefilledInChunks) {
  for (const int chunk_tokens : {7, 16, 50}) {
    GreedyRun run{.prompt = Prompt(120), .tokens_wanted = 81, .chunk_tokens = chunk_tokens};
    RunTogether(*engine_, {&run});
    EXPECT_EQ(run.output, Continuation(120)) << chunk_tokens;
  }
}

// Beside the whole story, 31 pieces of it of all lengths and chunk sizes, joining at other steps,
// so that prefill chunks and decode tokens mix.
TEST_F(StoriesTest, InABatchOf32) {
  std::vector<GreedyRun> runs = {{.prompt = Prompt(1), .tokens_wanted = 200}};
  for (int i = 1; i < 32; ++i) {
    runs.push_back({.prompt = Prompt(static_cast<size_t>(i) * 3),
                    .tokens_wanted = 12,
                    .chunk_tokens = i % 3 == 0 ? 0 : 2 * i,
                    .first_step = i % 5 * 3});
  }
  std::vector<GreedyRun*> together;
  for (GreedyRun& run : runs) together.push_back(&run);
  RunTogether(*engine_, together);
  for (const GreedyRun& run : runs) {
    std::vector<int32_t> expected = Continuation(run.prompt.size());
    expected.resize(static_cast<size_t>(run.tokens_wanted));
    EXPECT_EQ(run.output, expected) << run.prompt.size();
  }
}

}  // namespace
}  // namespace skein::engine
