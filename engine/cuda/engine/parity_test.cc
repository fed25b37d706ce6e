// The shipped bf16 model on CUDA beside the CPU: the same likelihood of real text to 1e-3, in whole
// prompts, slices and single tokens, and the greedy answers that it should give.
#include <algorithm>
#include <memory>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/model_backends.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr double kRelative = 1e-3;
// What the emulator has time for.
constexpr size_t kShortText = 400;
constexpr size_t kShortAnswer = 12;

class ParityTest : public testing::TestWithParam<ModelBackend> {
 protected:
  void SetUp() override {
    auto engine = GetParam().make(kParityModelDir, ParityPool());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto cpu =
        MakeModelEngine(kParityModelDir, MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}).value(),
                        MakeCpuDevice(), ParityPool());
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    cpu_ = *std::move(cpu);
  }
  bool slow() const { return GetParam().pace == ModelBackend::Pace::kVerySlow; }

  std::unique_ptr<Engine> engine_, cpu_;
};

TEST_P(ParityTest, SameLikelihood) {
  if (slow()) {
    const std::vector<int32_t> text = EvalText(kShortText);
    const double expected = MeanNll(*cpu_, text, 0);
    EXPECT_NEAR(MeanNll(*engine_, text, 0), expected, kRelative * expected);
    return;
  }
  const std::vector<int32_t> text = EvalText(kParityTextTokens);
  const double all = ParityScores(*engine_, text)[0], expected = ParityScores(*cpu_, text)[0];
  EXPECT_NEAR(all, expected, kRelative * expected);
}

TEST_P(ParityTest, AnswersAsItShould) {
  if (!slow()) {
    EXPECT_EQ(ParityGreedy(*engine_), ParityAnswers());
    return;
  }
  const std::vector<EvalItem> items = EvalItems();
  const EvalItem& shortest = *std::min_element(
      items.begin(), items.end(),
      [](const EvalItem& a, const EvalItem& b) { return a.prompt.size() < b.prompt.size(); });
  std::vector<int32_t> expected = shortest.answer;
  expected.resize(std::min(expected.size(), kShortAnswer));
  GreedyRun run{.prompt = shortest.prompt, .tokens_wanted = static_cast<int>(expected.size())};
  RunTogether(*engine_, {&run});
  EXPECT_EQ(run.output, expected);
}

INSTANTIATE_TEST_SUITE_P(All, ParityTest, testing::ValuesIn(ModelBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::engine
