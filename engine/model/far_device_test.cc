// The model on a device whose work runs later and whose memory the host cannot touch
// (far_device.h): plain steps, ring steps and groups must wait where they have to. Results are
// the same bits as on the host, because the same operators compute them in the same order.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/device/device_fabric.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/near_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/device/testing/far_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/far_ops.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kRanks = 4;
constexpr int kVocab = 60;
constexpr int kBlockTokens = 4;
constexpr size_t kFarBytes = 16 << 20;

std::string MakeModel(DType dtype) {
  const nlohmann::json config = {{"architectures", {"Qwen3ForCausalLM"}},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 8},
                                 {"vocab_size", kVocab},
                                 {"max_position_embeddings", 512}};
  const std::string dir = ::testing::TempDir() + "/far_device_" + std::string(NameOf(dtype)) +
                          ::testing::UnitTest::GetInstance()->current_test_info()->name();
  EXPECT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = dtype, .seed = 3}).ok());
  return dir;
}

ModelEngineOptions Options() {
  ModelEngineOptions options;
  options.block_tokens = kBlockTokens;
  options.num_blocks = 120;
  options.max_batch_tokens = 300;
  options.ring_segment_bytes = 3000;  // a few blocks: buffers are used again and again
  return options;
}

std::vector<int32_t> Text(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
  return ids;
}

// What a layer's blocks hold.
std::string LayerOf(const Engine& engine, int layer) {
  const KvRegion& region = engine.KvRegions()[static_cast<size_t>(layer)];
  return std::string(static_cast<const char*>(NearOfAny(region.base)),
                     static_cast<size_t>(region.bytes));
}

// Engines in places of their own: on the host, or each on a far device.
struct Engines {
  Engines(const std::string& dir, bool far) {
    for (int i = 0; i < kRanks; ++i) {
      devices.push_back(far ? std::make_shared<FarDevice>(kFarBytes) : nullptr);
      std::unique_ptr<Ops> ops = *MakeCpuOps({.threads = 1});
      if (far) ops = MakeFarOps(devices.back(), std::move(ops));
      auto engine = MakeModelEngine(
          dir, std::move(ops), far ? ShareFarDevice(devices.back()) : MakeCpuDevice(), Options());
      EXPECT_TRUE(engine.ok()) << engine.status();
      owned.push_back(*std::move(engine));
      all.push_back(owned.back().get());
    }
  }

  // In the order of ranks.
  FabricFactory Fabrics(LocalHub* hub, DevicePath path) {
    return [this, hub, path, next = size_t{0}]() mutable {
      const std::shared_ptr<FarDevice> device = devices[next++];
      std::unique_ptr<Fabric> fabric = hub->MakeFabric();
      if (device == nullptr) return fabric;
      if (path == DevicePath::kOnDevice) fabric = MakeNearFabric(std::move(fabric), device);
      return MakeDeviceFabric(std::move(fabric), device, path);
    };
  }

  std::vector<std::shared_ptr<FarDevice>> devices;
  std::vector<std::unique_ptr<Engine>> owned;
  std::vector<Engine*> all;
};

RingPrompt PromptOf(size_t tokens, bool even, uint32_t seed) {
  RingPrompt prompt;
  prompt.ids = Text(tokens, seed);
  prompt.even = even;
  prompt.seed = seed;
  const auto blocks = static_cast<int64_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  const int tp = seed > 2 ? 2 : 1;
  prompt.chunks = {{blocks / 3, {1, 3}, tp}, {blocks / 3, {3, 0, 1}}};
  prompt.chunks.push_back({blocks - 2 * (blocks / 3), {2, 1, 0, 3}, tp * tp});
  return prompt;
}

class FarModel : public ::testing::TestWithParam<DType> {};

TEST_P(FarModel, APlainStepIsThatOfTheHost) {
  const std::string dir = MakeModel(GetParam());
  Engines host(dir, false), far(dir, true);
  const std::vector<int32_t> ids = Text(150, 1);
  const RingOutcome expected = RunPlain(*host.all[0], ids), actual = RunPlain(*far.all[0], ids);
  EXPECT_EQ(actual.token, expected.token);
  EXPECT_EQ(actual.logprobs, expected.logprobs);
}

// Its blocks may go to somebody else, who copies into them beside the device's work.
TEST_P(FarModel, AStepThatSamplesNothingHasEndedWhenItReturns) {
  const std::string dir = MakeModel(GetParam());
  Engines host(dir, false), far(dir, true);
  const std::vector<int32_t> ids = Text(50, 4);
  std::vector<int32_t> table(13);
  std::iota(table.begin(), table.end(), 0);
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  std::vector<SequenceResult> results;
  ASSERT_TRUE(host.all[0]->Step({&step, 1}, nullptr, &results).ok());
  ASSERT_TRUE(far.all[0]->Step({&step, 1}, nullptr, &results).ok());
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(LayerOf(*far.all[0], layer) == LayerOf(*host.all[0], layer)) << layer;
  }
}

TEST_P(FarModel, RingStepsAreThoseOfTheHost) {
  const std::string dir = MakeModel(GetParam());
  LocalHub hub;
  Engines host(dir, false);
  RingRanks host_ranks(host.all, host.Fabrics(&hub, DevicePath::kHostStaged));
  for (const DevicePath path : {DevicePath::kHostStaged, DevicePath::kOnDevice}) {
    Engines far(dir, true);
    RingRanks far_ranks(far.all, far.Fabrics(&hub, path));
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(seed);
      const RingPrompt prompt = PromptOf(60 + 50 * seed, seed % 2 == 0, seed);
      const RingOutcome expected = host_ranks.Run(prompt), actual = far_ranks.Run(prompt);
      EXPECT_EQ(actual.token, expected.token);
      EXPECT_EQ(actual.logprobs, expected.logprobs);
      EXPECT_GT(actual.blocks_moved, 0);
    }
  }
}

// Looks until the layer that was queued just now is written. It may be so already: what the ranks
// exchange of a layer waits for the device.
void LookUntilWritten(int layer, StepProgress& progress) {
  EXPECT_EQ(progress.LayersQueued(), layer + 1);
  while (progress.LayersWritten() <= layer) {
  }
}

// A handoff may read a layer's blocks as soon as the step says that they are written.
TEST_P(FarModel, ALayerIsWrittenWhenItsKvIsThere) {
  const std::string dir = MakeModel(GetParam());
  LocalHub hub;
  Engines far(dir, true);
  const std::vector<int32_t> ids = Text(120, 5);
  std::vector<RingMember> members(far.all.begin(), far.all.begin() + 2);
  TestingRanks ranks(far.Fabrics(&hub, DevicePath::kHostStaged), 2);
  PromptDealer dealer(static_cast<int64_t>(ids.size()), kBlockTokens, 1);
  for (RingMember& member : members) member.Start(ids, true, 7);
  const DealtPiece piece = dealer.NextEven({0, 1}, dealer.BlocksLeft());
  const auto comm = ranks.GroupOfAll(), moves = ranks.GroupOfAll();
  std::vector<std::vector<std::string>> told(2);
  const auto run = [&](Communicator* one) {
    const auto rank = static_cast<size_t>(one->Rank());
    return members[rank].Run(piece, rank, {one, moves[rank].get()}, Later(),
                             [&, rank](int layer, StepProgress& progress) {
                               LookUntilWritten(layer, progress);
                               told[rank].push_back(LayerOf(*far.all[rank], layer));
                             });
  };
  for (const absl::Status& end : TestingRanks::Run(comm, run)) EXPECT_TRUE(end.ok()) << end;
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(told[rank].size(), 3u);
    EXPECT_GT(members[rank].computed().size(), 0u);
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(told[rank][static_cast<size_t>(layer)] == LayerOf(*far.all[rank], layer))
          << "rank " << rank << " layer " << layer;
    }
  }
}

// All its work is given to the device before any of it is waited for.
TEST_P(FarModel, AStepWhoseLayersAreAskedForWaitsForNone) {
  Engines far(MakeModel(GetParam()), true);
  const std::vector<int32_t> ids = Text(50, 4);
  std::vector<int32_t> table(13);
  std::iota(table.begin(), table.end(), 0);
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  const std::string before = LayerOf(*far.all[0], 0);
  std::vector<int> queued;
  StepProgress progress([&](int layer) {
    queued.push_back(layer);
    EXPECT_TRUE(LayerOf(*far.all[0], 0) == before) << "layer 0 is written, " << layer << " queued";
  });
  std::vector<SequenceResult> results;
  ASSERT_TRUE(far.all[0]->Step({&step, 1}, &progress, &results).ok());
  EXPECT_EQ(queued, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(progress.LayersWritten(), 3);
  EXPECT_FALSE(LayerOf(*far.all[0], 0) == before);
}

TEST_P(FarModel, GroupsAreThoseOfTheHost) {
  const std::string dir = MakeModel(GetParam());
  TestingGroupOptions options;
  options.ranks = 4;
  options.modes = {{1, 4}, {4, 1}, {2, 2}};
  options.engine = Options();
  auto host = GroupOfEngines::Make(dir, options);
  options.far_bytes = kFarBytes;
  auto far = GroupOfEngines::Make(dir, options);
  ASSERT_TRUE(host != nullptr && far != nullptr);
  const std::vector<int32_t> ids = Text(90, 8);
  for (const int slice : {0, 7, 1}) {
    EXPECT_EQ(MeanNll(*far, ids, slice), MeanNll(*host, ids, slice)) << slice;
  }
  std::vector<int32_t> table(40);
  std::iota(table.begin(), table.end(), 0);
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  std::vector<SequenceResult> results;
  // A step that samples nothing has ended when it returns.
  ASSERT_TRUE(host->Step({&step, 1}, nullptr, &results).ok());
  ASSERT_TRUE(far->Step({&step, 1}, nullptr, &results).ok());
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(LayerOf(far->engine(0), layer) == LayerOf(host->engine(0), layer)) << layer;
  }
  // And a layer is not called written before.
  std::vector<std::string> told;
  StepProgress progress([&](int layer) {
    LookUntilWritten(layer, progress);
    told.push_back(LayerOf(far->engine(0), layer));
  });
  ASSERT_TRUE(far->Step({&step, 1}, &progress, &results).ok());
  ASSERT_EQ(told.size(), 3u);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(told[static_cast<size_t>(layer)] == LayerOf(far->engine(0), layer)) << layer;
  }
}

TEST_P(FarModel, TooLittleMemoryIsAnErrorAtStart) {
  const std::string dir = MakeModel(GetParam());
  for (const size_t bytes : {size_t{8} << 10, size_t{100} << 10, size_t{400} << 10}) {
    auto device = std::make_shared<FarDevice>(bytes);
    auto engine = MakeModelEngine(dir, MakeFarOps(device, *MakeCpuOps({.threads = 1})),
                                  ShareFarDevice(device), Options());
    ASSERT_FALSE(engine.ok()) << bytes;
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted) << engine.status();
    EXPECT_EQ(device->MemoryInfo()->free_bytes, device->MemoryInfo()->total_bytes) << "leaked";
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FarModel, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace skein::engine
