// Engines of a group that also share weights: steps of the group run before and after, with slices
// of weights that lie elsewhere then, and are refused meanwhile.
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "engine/model/group/group_comms.h"
#include "engine/model/group/group_engine.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

// Logits of a prompt that two ranks run in TP, at each.
std::vector<absl::StatusOr<std::vector<float>>> RunTogetherInTp(
    TestingRanks& ranks, const std::vector<GroupEngine*>& engines, uint64_t group) {
  const std::vector<int> members = {0, 1};
  const std::vector<std::string> addresses = ranks.Addresses(members);
  const std::vector<GroupMode> modes = {{1, 2}};
  std::vector<absl::StatusOr<std::vector<float>>> logits(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto& answer = logits[static_cast<size_t>(rank)];
      auto comms = GroupComms::Make(ranks.fabric(rank), GroupId{group, 1}, addresses, rank, modes);
      ASSERT_TRUE(comms.ok()) << comms.status();
      const std::vector<int32_t> tokens = {1, 2, 3, 4, 5}, blocks = {0, 1};
      SequenceStep step;
      step.tokens = tokens;
      step.block_table = blocks;
      step.layout = KvLayout{2};
      step.want_logits = true;
      std::vector<SequenceResult> results;
      const absl::Status ran = engines[static_cast<size_t>(rank)]->StepTogether(
          comms->Part(modes[0], Later()), {&step, 1}, nullptr, &results);
      answer = ran.ok() ? absl::StatusOr<std::vector<float>>(results[0].logits) : ran;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return logits;
}

TEST(SharedGroup, StepsOfTheGroupRunBeforeAndAfterButNotMeanwhile) {
  const std::string dir = ::testing::TempDir() + "/shared_group";
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 96},
                                 {"num_hidden_layers", 5},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"vocab_size", 90},
                                 {"max_position_embeddings", 256}};
  ASSERT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = DType::kBF16, .seed = 7}).ok());
  LocalHub hub;
  TestingRanks fabrics([&] { return hub.MakeFabric(); }, 2);
  std::vector<std::shared_ptr<WeightSharing>> sharing;
  std::vector<std::unique_ptr<GroupEngine>> made;
  std::vector<GroupEngine*> engines;
  for (int rank = 0; rank < 2; ++rank) {
    sharing.push_back(std::make_shared<WeightSharing>(SharingOptions{}));
    ModelEngineOptions options;
    options.num_blocks = 60;
    options.max_batch_tokens = 96;
    options.weights_device = MakeCpuDevice();
    options.sharing = sharing.back();
    auto ops = MakeCpuOps({.threads = 1, .reproducible = true});
    auto engine = GroupEngine::Make(dir, *std::move(ops), MakeCpuDevice(), options, 2);
    ASSERT_TRUE(engine.ok()) << engine.status();
    made.push_back(*std::move(engine));
    engines.push_back(made.back().get());
  }
  std::filesystem::remove_all(dir);
  const auto before = RunTogetherInTp(fabrics, engines, 11);
  ASSERT_TRUE(before[0].ok()) << before[0].status();
  const std::vector<float> alone = LogitsAfter(*engines[0], {1, 2, 3});

  const std::vector<SharingOffer> offers = {*sharing[0]->Offer(0, 2), *sharing[1]->Offer(1, 2)};
  // Without Ops for it.
  EXPECT_TRUE(absl::IsInvalidArgument(sharing[0]->Enter(1, offers, SharedMode::kCompute)));
  for (const auto& rank : sharing) {
    ASSERT_EQ(rank->Enter(1, offers, SharedMode::kWeights), absl::OkStatus());
  }
  EXPECT_EQ(LogitsAfter(*engines[0], {1, 2, 3}), alone);
  for (const auto& refused : RunTogetherInTp(fabrics, engines, 12)) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  }
  for (const auto& rank : sharing) ASSERT_EQ(rank->Leave(2), absl::OkStatus());
  const auto after = RunTogetherInTp(fabrics, engines, 13);
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(after[rank].ok()) << after[rank].status();
    EXPECT_EQ(*after[rank], *before[rank]);
  }
}

}  // namespace
}  // namespace skein::engine
