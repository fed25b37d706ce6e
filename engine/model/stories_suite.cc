// The golden continuation of ../shared/models/stories260K, and the likelihood of a text, through
// the whole engine on every backend (model_backends.h).
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model_engine.h"
#include "engine/model/testing/model_backends.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/slow_forward.h"
#include "engine/tokenizer/tokenizer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

constexpr int32_t kBos = 1;

using Pace = ModelBackend::Pace;

class StoriesTest : public ::testing::TestWithParam<ModelBackend> {
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
    dir_ = dir;
    ModelEngineOptions options;
    options.num_blocks = 33 * 13;
    absl::StatusOr<std::unique_ptr<Engine>> engine = GetParam().make(dir, options);
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
  // What follows, as far as there is time for: at most `wanted` ids.
  std::vector<int32_t> Continuation(size_t count, size_t wanted) const {
    if (GetParam().pace == Pace::kVerySlow) wanted = std::min<size_t>(wanted, 16);
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    return {begin, begin + static_cast<std::ptrdiff_t>(wanted)};
  }
  void ExpectContinues(size_t count, int slice_tokens) const {
    const std::vector<int32_t> expected = Continuation(count, 201 - count);
    GreedyRun run{.prompt = Prompt(count),
                  .tokens_wanted = static_cast<int>(expected.size()),
                  .slice_tokens = slice_tokens};
    RunTogether(*engine_, {&run});
    EXPECT_EQ(run.output, expected) << count << " tokens in slices of " << slice_tokens;
  }

  std::string dir_;
  std::vector<int32_t> ids_;
  std::vector<double> logits_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(StoriesTest, LogitsOfTheFirstPosition) {
  const std::vector<float> logits = LogitsAfter(*engine_, {kBos});
  ASSERT_EQ(logits.size(), logits_.size());
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], logits_[i], 1e-4) << i;
}

TEST_P(StoriesTest, GreedyFromOneToken) { ExpectContinues(1, 0); }

TEST_P(StoriesTest, PrefilledWhole) { ExpectContinues(150, 0); }

TEST_P(StoriesTest, PrefilledInSlices) {
  const std::vector<int> sizes =
      GetParam().pace == Pace::kFast ? std::vector{1, 7, 16, 50} : std::vector{50};
  for (const int slice_tokens : sizes) ExpectContinues(150, slice_tokens);
}

// Beside the whole story, 31 pieces of it of all lengths and slice sizes, joining at other steps,
// so that prefill slices and decode tokens mix.
TEST_P(StoriesTest, InABatchOf32) {
  std::vector<GreedyRun> runs = {{.prompt = Prompt(1), .tokens_wanted = 200}};
  for (int i = 1; i < 32; ++i) {
    runs.push_back({.prompt = Prompt(static_cast<size_t>(i) + 1),
                    .tokens_wanted = 12,
                    .slice_tokens = i % 3 == 0 ? 0 : 2 * i,
                    .first_step = i % 5 * 3});
  }
  std::vector<std::vector<int32_t>> expected;
  std::vector<GreedyRun*> together;
  for (GreedyRun& run : runs) {
    expected.push_back(Continuation(run.prompt.size(), static_cast<size_t>(run.tokens_wanted)));
    run.tokens_wanted = static_cast<int>(expected.back().size());
    together.push_back(&run);
  }
  RunTogether(*engine_, together);
  for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i].output, expected[i]) << i;
}

// A story of the kind that the model was trained on, but not one that it wrote.
constexpr char kText[] =
    "Once upon a time, there was a little bird named Kiko. Kiko lived in a big tree near a pond. "
    "One day, Kiko saw a shiny stone under the water. \"I want that stone,\" said Kiko. He asked "
    "his "
    "friend, the frog, to help. The frog jumped into the pond and came back with the stone. Kiko "
    "was "
    "very happy. \"Thank you!\" he said. They played with the stone until the sun went down, and "
    "then "
    "they both went home to sleep.";
constexpr double kTextNll = 1.2781068483692504;  // nats a token (perplexity 3.590), by SlowForward

TEST_P(StoriesTest, PerplexityOfAText) {
  const auto tokenizer = Tokenizer::Load(dir_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<int32_t> ids =
      (*tokenizer)->Encode(kText, {.add_special_tokens = true, .parse_special = false});
  ASSERT_EQ(ids.size(), size_t{188});
  if (GetParam().name == "Reference") {
    EXPECT_NEAR(SlowNll(SlowForward(dir_, ids), ids), kTextNll, 1e-9);
  }
  const std::vector<int> sizes =
      GetParam().pace == Pace::kVerySlow ? std::vector{0, 67} : std::vector{0, 1, 33};
  for (const int slice_tokens : sizes) {
    EXPECT_NEAR(MeanNll(*engine_, ids, slice_tokens), kTextNll, 1e-5 * kTextNll) << slice_tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoriesTest, ::testing::ValuesIn(ModelBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::engine
