// Random CDSP plans, dealt evenly or in any way that a ring step allows, on small models: every
// token's likelihood and every block of KV are those of one rank.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/kv_compare.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kRanksMax = 8;
constexpr int kVocab = 60;
constexpr int kHeadDim = 8;
constexpr int kSegmentBlocks = 7;

struct Shape {
  DType dtype;
  int block_tokens;
  int kv_heads;  // of 8 heads
  bool qk_norm;
};

// One rank for each place of a plan, and one that runs the prompt alone.
class Cluster {
 public:
  explicit Cluster(const Shape& shape) : shape_(shape) {
    const nlohmann::json config = {
        {"architectures", {shape.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
        {"hidden_size", 32},
        {"intermediate_size", 48},
        {"num_hidden_layers", 3},
        {"num_attention_heads", 8},
        {"num_key_value_heads", shape.kv_heads},
        {"head_dim", kHeadDim},
        {"vocab_size", kVocab},
        {"max_position_embeddings", 512}};
    const std::string dir = ::testing::TempDir() + "/sp_plans_" + std::string(NameOf(shape.dtype)) +
                            std::to_string(shape.kv_heads) + (shape.qk_norm ? "n" : "");
    const absl::Status written =
        tools::WriteRandomCheckpoint(dir, config, {.dtype = shape.dtype, .seed = 5, .shards = 1});
    EXPECT_TRUE(written.ok()) << written;
    ModelEngineOptions options;
    options.block_tokens = shape.block_tokens;
    options.num_blocks = 400 / shape.block_tokens + 10;
    options.max_batch_tokens = 400;  // a tensor group of 8 exchanges 50 rows of each at once
    const int64_t block_bytes = int64_t{2} * shape.kv_heads * shape.block_tokens * kHeadDim *
                                static_cast<int64_t>(BytesOf(shape.dtype));
    options.ring_segment_bytes = kSegmentBlocks * block_bytes;
    for (int i = 0; i <= kRanksMax; ++i) {
      auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
      EXPECT_TRUE(engine.ok()) << engine.status();
      owned_.push_back(*std::move(engine));
      if (i < kRanksMax) engines_.push_back(owned_.back().get());
    }
    ranks_ = std::make_unique<RingRanks>(engines_, [this] { return hub_.MakeFabric(); });
  }

  const Shape& shape() const { return shape_; }
  Engine& plain() { return *owned_.back(); }
  const std::vector<Engine*>& engines() const { return engines_; }
  RingRanks& ranks() { return *ranks_; }

 private:
  Shape shape_;
  LocalHub hub_;
  std::vector<std::unique_ptr<Engine>> owned_;
  std::vector<Engine*> engines_;
  std::unique_ptr<RingRanks> ranks_;
};

// A prompt of 1 to 300 tokens in up to four chunks, whose members only grow, and which share the
// dense part by any power of two.
RingPrompt RandomPrompt(int block_tokens, std::mt19937* random) {
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>((*random)() % static_cast<uint64_t>(high - low + 1));
  };
  RingPrompt prompt;
  prompt.seed = static_cast<uint32_t>((*random)());
  prompt.even = draw(0, 1) == 0;
  prompt.ids.resize(static_cast<size_t>(draw(2, draw(0, 3) == 0 ? 300 : 90)));
  for (int32_t& id : prompt.ids) id = static_cast<int32_t>(draw(0, kVocab - 1));
  int64_t blocks = (static_cast<int64_t>(prompt.ids.size()) + block_tokens - 1) / block_tokens;
  std::vector<int> order(kRanksMax);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), *random);
  size_t members = 0;
  for (int64_t chunks = draw(1, 4); blocks > 0; --chunks) {
    const int64_t size = chunks <= 1 ? blocks : draw(1, blocks);
    blocks -= size;
    members =
        static_cast<size_t>(draw(std::max<int64_t>(1, static_cast<int64_t>(members)), kRanksMax));
    std::vector<int> chosen(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(members));
    std::shuffle(chosen.begin(), chosen.end(), *random);  // any order of ranks
    std::vector<int> shared = {1};                        // that divide the members
    while (members % (2 * static_cast<size_t>(shared.back())) == 0) {
      shared.push_back(2 * shared.back());
    }
    prompt.chunks.push_back({size, chosen, shared[(*random)() % shared.size()]});
  }
  prompt.score = draw(0, 2) > 0;  // else only one row of the prompt needs logits
  return prompt;
}

class RingPlans : public ::testing::TestWithParam<Shape> {};

TEST_P(RingPlans, AreExact) {
  Cluster cluster(GetParam());
  const DType dtype = GetParam().dtype;
  const double token_tolerance = dtype == DType::kF32 ? 2e-4 : dtype == DType::kF16 ? 0.05 : 0.3;
  const double kv_tolerance = dtype == DType::kF32 ? 2e-4 : dtype == DType::kF16 ? 0.03 : 0.2;
  double nll = 0.0, expected_nll = 0.0;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed * 1000 + static_cast<uint32_t>(GetParam().kv_heads));
    const RingPrompt prompt = RandomPrompt(GetParam().block_tokens, &random);
    const RingOutcome expected = RunPlain(cluster.plain(), prompt.ids, prompt.score);
    const RingOutcome actual = cluster.ranks().Run(prompt);
    ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < actual.logprobs.size(); ++i) {
      ASSERT_NEAR(actual.logprobs[i], expected.logprobs[i], token_tolerance) << "token " << i;
      nll += actual.logprobs[i];
      expected_nll += expected.logprobs[i];
    }
    ASSERT_EQ(actual.places.size(), expected.places.size());
    ASSERT_LE(LargestKvDifference(cluster.engines(), actual.places, cluster.plain(),
                                  expected.places, static_cast<int64_t>(prompt.ids.size())),
              kv_tolerance);
    if (dtype == DType::kF32) {
      ASSERT_EQ(actual.token, expected.token);
    }
  }
  EXPECT_NEAR(nll / expected_nll, 1.0, dtype == DType::kF32 ? 1e-5 : 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    All, RingPlans,
    ::testing::Values(Shape{DType::kF32, 1, 2, false}, Shape{DType::kF32, 5, 4, true},
                      Shape{DType::kF32, 16, 8, false}, Shape{DType::kF32, 5, 1, false},
                      Shape{DType::kBF16, 1, 8, false}, Shape{DType::kBF16, 5, 2, false},
                      Shape{DType::kBF16, 16, 4, true}, Shape{DType::kF16, 1, 4, false},
                      Shape{DType::kF16, 16, 2, false}),
    [](const auto& info) {
      return std::string(NameOf(info.param.dtype)) + "_block" +
             std::to_string(info.param.block_tokens) + "_kv" + std::to_string(info.param.kv_heads);
    });

}  // namespace
}  // namespace skein::engine
