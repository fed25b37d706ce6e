// NLL parity of the shipped model on real text, in its own bf16 and in f32: TP, SP and (SP, TP) of
// 2, 4 and 8 ranks (more, as many and fewer KV heads than ranks), and modes that change at every
// step, against one rank; and its greedy text.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::engine {
namespace {

std::unique_ptr<Engine> Alone(const std::string& dir) {
  auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                                MakeCpuDevice(), ParityPool());
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::unique_ptr<GroupOfEngines> Group(const std::string& dir, const std::vector<GroupMode>& modes) {
  return GroupOfEngines::Make(dir, {modes[0].ranks(), modes, /*cpu_ops=*/true, ParityPool()});
}

// The model in one precision and what one rank says.
class GroupParityTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    dir_ = kParityModelDir;
    if (f32()) {
      dir_ = ::testing::TempDir() + "/group_parity_f32_" + std::to_string(getpid());
      WidenCheckpoint(kParityModelDir, dir_);
    }
    text_ = EvalText(kParityTextTokens);
    expected_ = ParityScores(*Alone(dir_), text_);
  }
  void TearDown() override {
    if (f32()) std::filesystem::remove_all(dir_);
  }

  bool f32() const { return GetParam(); }

  void ExpectParity(const std::vector<GroupMode>& modes) {
    const auto group = Group(dir_, modes);
    ASSERT_NE(group, nullptr);
    const std::vector<double> scores = ParityScores(*group, text_);
    const double largest = LargestDifference(scores, expected_);
    EXPECT_LE(largest, f32() ? 1e-5 : 1e-3)
        << "sp " << modes[0].sp << ", tp " << modes[0].tp << " of " << modes.size() << " modes";
    std::printf("sp %d tp %d of %zu modes: NLL %.6f, relative difference %.1e, a sequence's %.1e\n",
                modes[0].sp, modes[0].tp, modes.size(), scores[0],
                std::abs(scores[0] / expected_[0] - 1.0), largest);
  }

  std::string dir_;
  std::vector<int32_t> text_;
  std::vector<double> expected_;
};

TEST_P(GroupParityTest, TensorParallel) {
  for (const int ranks : {2, 4, 8}) ExpectParity({{1, ranks}});
}

TEST_P(GroupParityTest, SequenceParallel) {
  for (const int ranks : {2, 4, 8}) ExpectParity({{ranks, 1}});
}

TEST_P(GroupParityTest, Combined) {
  for (const GroupMode mode : {GroupMode{2, 2}, {4, 2}, {2, 4}}) ExpectParity({mode});
}

TEST_P(GroupParityTest, ModesThatChangeAtEveryStep) {
  for (const int ranks : {2, 4, 8}) ExpectParity(ModesOf(ranks));
}

INSTANTIATE_TEST_SUITE_P(All, GroupParityTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "F32" : "BF16"; });

TEST(GroupGreedyTest, AnswersTheSameInEveryMode) {
  const std::vector<int32_t> expected = ParityAnswers();
  EXPECT_EQ(ParityGreedy(*Alone(kParityModelDir)), expected);
  for (const std::vector<GroupMode>& modes :
       {std::vector<GroupMode>{{1, 2}}, {{2, 1}}, {{1, 8}}, {{8, 1}}, {{2, 2}}, ModesOf(4)}) {
    const auto group = Group(kParityModelDir, modes);
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(ParityGreedy(*group), expected)
        << "sp " << modes[0].sp << ", tp " << modes[0].tp << " of " << modes.size() << " modes";
  }
}

// The story of ../shared/models/stories260K, from its beginning and from ten later words on: a
// model that knows its text well, so that anything amiss shows.
TEST(GroupStoriesTest, KnowsTheStoryInEveryMode) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr || *shared == '\0') GTEST_SKIP() << "needs ../shared";
  const std::string dir = std::string(shared) + "/models/stories260K";
  std::ifstream file(dir + "/golden_greedy.json");
  if (!file) GTEST_SKIP() << "needs ../shared";
  std::vector<int32_t> story = {1};
  for (const int32_t id :
       nlohmann::json::parse(file).at("greedy_ids").get<std::vector<int32_t>>()) {
    story.push_back(id);
  }
  const auto score = [&](Engine& engine) {
    std::vector<NllRun> runs;
    for (int i = 0; i < 11; ++i) {
      runs.push_back({.ids = {story.begin() + i, story.end()}, .slice_tokens = i == 0 ? 0 : 7 * i});
    }
    std::vector<NllRun*> together;
    for (NllRun& run : runs) together.push_back(&run);
    ScoreTogether(engine, together);
    std::vector<double> scores;
    for (const NllRun& run : runs) scores.push_back(run.nll);
    return scores;
  };
  const std::vector<double> expected = score(*Alone(dir));
  EXPECT_LT(expected[0], 1.0);
  for (const std::vector<GroupMode>& modes :
       {std::vector<GroupMode>{{1, 2}}, {{4, 1}}, {{1, 8}}, {{4, 2}}, ModesOf(8)}) {
    const auto group = Group(dir, modes);
    ASSERT_NE(group, nullptr);
    const double largest = LargestDifference(score(*group), expected);
    EXPECT_LE(largest, 1e-5) << "sp " << modes[0].sp << ", tp " << modes[0].tp;
    std::printf("sp %d tp %d of %zu modes: a story's NLL %.6f, largest difference %.1e\n",
                modes[0].sp, modes[0].tp, modes.size(), expected[0], largest);
  }
}

}  // namespace
}  // namespace skein::engine
