// Workers that run a prompt's chunks as (SP, TP) hold the KV, and sample the token, of one instance
// that computes the prompt alone, on each device that runs without GPUs.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/model/model_engine.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/worker/testing/prefill_members.h"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::services {
namespace {

using testing::PrefillMembers;
using testing::PromptKv;

constexpr int kMembers = 4;
constexpr int kBlockTokens = 4;
constexpr int kBlocks = 128;
constexpr int kRounds = 30;

std::unique_ptr<engine::StepEngine> EmulatedEngine() {
  return *engine::EmulatedEngine::Create({.kv = {{.num_layers = 2,
                                                  .kv_heads = 1,
                                                  .head_dim = 4,
                                                  .block_tokens = kBlockTokens,
                                                  .dtype = engine::DType::kF32},
                                                 kBlocks},
                                          .vocab_size = 1024,
                                          .max_positions = 512});
}

std::unique_ptr<engine::StepEngine> CpuEngine() {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 128},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 8},
                                 {"vocab_size", 1024},
                                 {"max_position_embeddings", 512}};
  const std::string dir = ::testing::TempDir() + "/tensor_plans";
  static const absl::Status written = tools::WriteRandomCheckpoint(
      dir, config, {.dtype = engine::DType::kF32, .seed = 5, .shards = 1});
  EXPECT_TRUE(written.ok()) << written;
  engine::ModelEngineOptions options;
  options.block_tokens = kBlockTokens;
  options.num_blocks = kBlocks;
  options.max_batch_tokens = 512;
  auto made = engine::MakeModelEngine(dir, *engine::MakeCpuOps({.threads = 1}),
                                      engine::MakeCpuDevice(), options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// The largest difference of two f32 values of the same place; NaN when either side has one.
double LargestDifference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  std::vector<float> left(a.size() / sizeof(float)), right(left.size());
  std::memcpy(left.data(), a.data(), a.size());
  std::memcpy(right.data(), b.data(), b.size());
  double largest = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const double difference = std::abs(static_cast<double>(left[i]) - right[i]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// A device, and how far its KV may be from that of one instance; 0: the same bytes.
struct OnDevice {
  std::string name;
  PrefillMembers::MakeEngine make_engine;
  double tolerance = 0;
};

class TensorPlans : public ::testing::TestWithParam<OnDevice>, protected PrefillMembers {
 protected:
  TensorPlans() : PrefillMembers(kMembers, kBlockTokens, GetParam().make_engine) {}

  // Of whole blocks, so that all of their bytes are the prompt's.
  scheduler::RequestId SubmitBlocks(int64_t blocks) {
    return Submit([this, blocks](scheduler::RequestSpec& spec) {
      spec.prompt.clear();
      for (int64_t i = 0; i < blocks * kBlockTokens; ++i) {
        spec.prompt.push_back(static_cast<int32_t>(Between(0, 1000)));
      }
    });
  }
  // What all of its members together have committed; each block once.
  PromptKv KvOf(scheduler::RequestId id) const {
    PromptKv all;
    for (const int member : members_of_.at(id)) {
      const auto committed = members_[member]->kv.find(id);
      if (committed == members_[member]->kv.end()) continue;
      for (const auto& [block, bytes] : committed->second) {
        EXPECT_TRUE(all.emplace(block, bytes).second) << "block " << block << " twice";
      }
    }
    return all;
  }
  std::vector<int32_t> SampledOf(scheduler::RequestId id) const {
    std::vector<int32_t> sampled;
    for (const int member : members_of_.at(id)) {
      EXPECT_TRUE(members_[member]->ended.at(id).ok()) << members_[member]->ended.at(id);
      const auto it = members_[member]->sampled.find(id);
      if (it != members_[member]->sampled.end()) sampled.push_back(it->second);
    }
    return sampled;
  }
  void ExpectSameKv(const PromptKv& actual, const PromptKv& expected) const {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [block, bytes] : expected) {
      const auto same = actual.find(block);
      ASSERT_NE(same, actual.end()) << "block " << block;
      ASSERT_EQ(same->second.size(), bytes.size());
      if (GetParam().tolerance == 0) {
        ASSERT_EQ(same->second, bytes) << "block " << block;
      } else {
        ASSERT_LE(LargestDifference(same->second, bytes), GetParam().tolerance) << block;
      }
    }
  }
};

TEST_P(TensorPlans, HaveTheKvAndTheTokenOfOneInstance) {
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const int64_t blocks = Between(1, 40);
    const scheduler::RequestId together = SubmitBlocks(blocks);
    RunUntilEnded(together);
    const std::vector<int32_t>& prompt = specs_.at(together)->prompt;
    const scheduler::RequestId alone = Submit(
        [&prompt](scheduler::RequestSpec& spec) { spec.prompt = prompt; }, /*members_max=*/1);
    RunUntilEnded(alone);
    const PromptKv expected = KvOf(alone);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), blocks);
    ExpectSameKv(KvOf(together), expected);
    ASSERT_EQ(SampledOf(alone).size(), 1u);
    EXPECT_EQ(SampledOf(together), SampledOf(alone));
  }
  std::map<int, uint64_t> tensor_steps;  // by ranks
  for (const auto& member : members_) {
    for (const StepTotals& one : member->counts.Totals()) {
      if (one.mode == "ring_tp") tensor_steps[one.ranks] += one.steps;
    }
  }
  EXPECT_GT(tensor_steps[2], 0u);
  EXPECT_GT(tensor_steps[kMembers], 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, TensorPlans,
                         ::testing::Values(OnDevice{"emulated", EmulatedEngine},
                                           OnDevice{"cpu", CpuEngine, 2e-4}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::services
