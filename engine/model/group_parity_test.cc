// NLL parity of the shipped model on real text, in its own bf16 and in f32: TP, SP and (SP, TP) of
// 2, 4 and 8 ranks (more, as many and fewer KV heads than ranks), and modes that change at every
// step, against one rank; and its greedy text.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/testing/group_of_engines.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr char kModelDir[] = "deploy/models/fledgling";
constexpr size_t kTextTokens = 2173;

ModelEngineOptions Pool() {
  ModelEngineOptions options;
  options.num_blocks = 160;
  return options;
}

// The model in one precision and what one rank says.
class GroupParityTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    dir_ = kModelDir;
    if (f32()) {
      dir_ = ::testing::TempDir() + "/group_parity_f32_" + std::to_string(::getpid());
      WidenCheckpoint(kModelDir, dir_);
    }
    text_ = EvalText(kModelDir, kTextTokens);
    const auto alone = Alone();
    expected_ = ParityNll(*alone, text_, &expected_by_sequence_);
  }
  void TearDown() override {
    if (f32()) std::filesystem::remove_all(dir_);
  }

  bool f32() const { return GetParam(); }
  double tolerance() const { return f32() ? 1e-5 : 1e-3; }
  std::unique_ptr<Engine> Alone() const {
    auto engine = MakeModelEngine(dir_, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                                  MakeCpuDevice(), Pool());
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  void ExpectParity(const std::vector<GroupMode>& modes) {
    const int ranks = modes[0].ranks();
    SCOPED_TRACE(testing::Message() << "sp " << modes[0].sp << ", tp " << modes[0].tp << " of "
                                    << modes.size() << " modes");
    const auto group = GroupOfEngines::Make(dir_, {ranks, modes, /*cpu_ops=*/true, Pool()});
    ASSERT_NE(group, nullptr);
    std::vector<double> by_sequence;
    const double nll = ParityNll(*group, text_, &by_sequence);
    double largest = std::abs(nll / expected_ - 1.0);
    for (size_t i = 0; i < by_sequence.size(); ++i) {
      largest = std::max(largest, std::abs(by_sequence[i] / expected_by_sequence_[i] - 1.0));
    }
    EXPECT_LE(largest, tolerance()) << nll << " instead of " << expected_;
    largest_ = std::max(largest_, largest);
    RecordProperty("largest_relative_difference", std::to_string(largest_));
    std::printf("sp %d tp %d modes %zu: relative difference of the mean %.1e, largest %.1e\n",
                modes[0].sp, modes[0].tp, modes.size(), std::abs(nll / expected_ - 1.0), largest);
  }

  std::string dir_;
  std::vector<int32_t> text_;
  double expected_ = 0.0;
  std::vector<double> expected_by_sequence_;
  double largest_ = 0.0;
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

TEST(GroupGreedyTest, SaysTheSameTextInEveryMode) {
  const std::vector<int32_t> text = EvalText(kModelDir, 400);
  const auto run = [&](Engine& engine) {
    GreedyRun first{.prompt = {text.begin(), text.begin() + 61}, .tokens_wanted = 20};
    GreedyRun second{.prompt = {text.begin() + 61, text.begin() + 390},
                     .tokens_wanted = 12,
                     .chunk_tokens = 47,
                     .first_step = 2};
    RunTogether(engine, {&first, &second});
    first.output.insert(first.output.end(), second.output.begin(), second.output.end());
    return first.output;
  };
  auto alone = MakeModelEngine(kModelDir, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                               MakeCpuDevice(), Pool());
  ASSERT_TRUE(alone.ok()) << alone.status();
  const std::vector<int32_t> expected = run(**alone);
  ASSERT_EQ(expected.size(), 32u);
  for (const std::vector<GroupMode>& modes :
       {std::vector<GroupMode>{{1, 2}}, {{2, 1}}, {{1, 8}}, {{8, 1}}, {{2, 2}}, ModesOf(4)}) {
    const int ranks = modes[0].ranks();
    const auto group = GroupOfEngines::Make(kModelDir, {ranks, modes, /*cpu_ops=*/true, Pool()});
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(run(*group), expected) << "sp " << modes[0].sp << ", tp " << modes[0].tp;
  }
}

}  // namespace
}  // namespace skein::engine
