// One engine at each rank runs steps of every kind in turns, alone, of a group in changing modes
// and of a ring, through one interface: NLL of real text as one device alone has it.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/model/group/group_engine.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/stepping/testing/mixed_steps.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr size_t kTokens = 601;
constexpr int64_t kSlice = 150;

class MixedStepsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!f32()) return;
    dir_ = ::testing::TempDir() + "/mixed_steps_f32_" + std::to_string(getpid());
    WidenCheckpoint(kParityModelDir, dir_);
  }
  void TearDown() override {
    if (f32()) std::filesystem::remove_all(dir_);
  }
  bool f32() const { return GetParam(); }

  void ExpectParity(int ranks) {
    std::vector<std::unique_ptr<GroupEngine>> engines;
    std::vector<StepEngine*> all;
    for (int rank = 0; rank < ranks; ++rank) {
      auto engine = GroupEngine::Make(dir_, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                                      MakeCpuDevice(), ParityPool(), ranks);
      ASSERT_TRUE(engine.ok()) << engine.status();
      engines.push_back(*std::move(engine));
      all.push_back(engines.back().get());
    }
    const std::vector<int32_t> text = EvalText(kTokens);
    const auto scores = ScoreMixed(all, text, kSlice);
    ASSERT_TRUE(scores.ok()) << scores.status();
    expected_ = MeanNll(*engines[0], text, /*slice_tokens=*/0);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ExpectNll(scores->alone[rank], "alone");
      ExpectNll(scores->group[rank], "group");
      EXPECT_EQ(scores->group[rank], scores->group[0]);
    }
    ExpectNll(scores->ring, "ring");
  }

  void ExpectNll(const std::vector<float>& logprobs, const char* kind) const {
    ASSERT_EQ(logprobs.size(), kTokens - 1) << kind;
    double nll = 0;
    for (const float logprob : logprobs) nll -= logprob / static_cast<double>(logprobs.size());
    EXPECT_LE(std::abs(nll / expected_ - 1), f32() ? 1e-5 : 1e-3) << kind;
    std::printf("%s: NLL %.6f, relative difference %.1e\n", kind, nll,
                std::abs(nll / expected_ - 1));
  }

  std::string dir_ = kParityModelDir;
  double expected_ = 0;
};

TEST_P(MixedStepsTest, OfTwoRanks) { ExpectParity(2); }
TEST_P(MixedStepsTest, OfFourRanks) { ExpectParity(4); }

INSTANTIATE_TEST_SUITE_P(Precisions, MixedStepsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "F32" : "BF16"; });

}  // namespace
}  // namespace skein::engine
