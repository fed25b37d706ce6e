// Ring steps and group steps on CUDA's operators, over each way between the ranks' devices: the
// likelihood and the token of one rank alone.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/cuda/testing/twin_rank.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/model/testing/sequence_runner.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kVocab = 60;
constexpr int kBlockTokens = 4;
constexpr double kTolerance = 2e-4;

class Together : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const nlohmann::json config = {{"architectures", {"Qwen3ForCausalLM"}},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 8},
                                   {"num_key_value_heads", 4},
                                   {"head_dim", 8},
                                   {"vocab_size", kVocab},
                                   {"max_position_embeddings", 512}};
    dir_ = ::testing::TempDir() + "/together_" + GetParam();
    ASSERT_TRUE(tools::WriteRandomCheckpoint(dir_, config, {.dtype = DType::kF32, .seed = 3}).ok());
    options_.block_tokens = kBlockTokens;
    options_.num_blocks = 60;
    options_.max_batch_tokens = 100;
    options_.ring_segment_bytes = 3000;  // a few blocks: buffers are used again and again
  }

  static std::vector<int32_t> Text(size_t count) {
    std::mt19937 random(5);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
    return ids;
  }

  std::string dir_;
  ModelEngineOptions options_;
  LocalHub hub_;
};

TEST_P(Together, RingStepsAreThoseOfOneAlone) {
  constexpr int kRanks = 3;
  if (const std::string why = WhyNotOn(GetParam(), kRanks); !why.empty()) GTEST_SKIP() << why;
  std::vector<std::unique_ptr<Fabric>> fabrics;
  std::vector<Device*> devices;
  std::vector<std::unique_ptr<Engine>> owned;
  std::vector<Engine*> engines;
  for (int r = 0; r < kRanks; ++r) {
    TestingRank rank = MakeTestingRank(GetParam(), r, &hub_);
    devices.push_back(rank.device.get());
    fabrics.push_back(std::move(rank.fabric));
    auto engine = MakeModelEngine(dir_, std::move(rank.ops), std::move(rank.device), options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    owned.push_back(*std::move(engine));
    engines.push_back(owned.back().get());
  }
  RingPrompt prompt = {.ids = Text(70), .chunks = {{6, {1, 2}}, {12, {2, 0, 1}}}};
  const RingOutcome alone = RunPlain(*engines[0], prompt.ids, true, devices[0]);
  RingRanks ranks(
      engines, [&, next = size_t{0}]() mutable { return std::move(fabrics[next++]); }, devices);
  for (const int tp : {1, 2}) {  // whether ranks 1 and 2 share the dense part
    prompt.chunks[0].tp = tp;
    const RingOutcome together = ranks.Run(prompt);
    EXPECT_GT(together.blocks_moved, 0);
    EXPECT_EQ(together.token, alone.token);
    ASSERT_EQ(together.logprobs.size(), alone.logprobs.size());
    for (size_t i = 0; i < alone.logprobs.size(); ++i) {
      EXPECT_NEAR(together.logprobs[i], alone.logprobs[i], kTolerance) << i;
    }
  }
}

TEST_P(Together, GroupStepsAreThoseOfOneAlone) {
  TestingGroupOptions options;
  options.ranks = 2;
  options.modes = {{1, 2}, {2, 1}};
  options.engine = options_;
  if (const std::string why = WhyNotOn(GetParam(), options.ranks); !why.empty()) {
    GTEST_SKIP() << why;
  }
  options.make_rank = [this](int r) {
    TestingRank rank = MakeTestingRank(GetParam(), r, &hub_);
    return TestingRankParts{std::move(rank.ops), std::move(rank.device), std::move(rank.fabric)};
  };
  const auto group = GroupOfEngines::Make(dir_, options);
  ASSERT_TRUE(group != nullptr);
  TestingRank one = MakeTestingRank(GetParam(), 0, &hub_);
  auto alone = MakeModelEngine(dir_, std::move(one.ops), std::move(one.device), options_);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const std::vector<int32_t> ids = Text(40);
  const double expected = MeanNll(**alone, ids, 0);
  for (const int slice : {0, 7, 1}) {
    EXPECT_NEAR(MeanNll(*group, ids, slice), expected, 1e-5 * expected) << slice;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Together, ::testing::ValuesIn(TestingWays()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::engine
