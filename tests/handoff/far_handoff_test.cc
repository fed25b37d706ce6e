// A prompt is computed on a device that runs its work late and whose memory is not directly
// accessible (engine/device/testing/far_device.h). Its KV is handed over layer by layer meanwhile,
// to another such device, through the host or directly. The result must equal the host engine's bit
// by bit. A block sent before it was computed would arrive with its old contents.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/device/testing/far_device.h"
#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/testing/pool.h"
#include "engine/handoff/testing/whole_prompt.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/far_ops.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/stepping/testing/run_plan.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein {
namespace {

constexpr int kBlockTokens = 4;
constexpr int64_t kTokens = 250;
constexpr int64_t kBlocks = (kTokens + kBlockTokens - 1) / kBlockTokens;
constexpr engine::HandoffKey kKey = {{1, 2}, {3}};

std::string MakeModel() {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 6},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"vocab_size", 50},
                                 {"max_position_embeddings", 512}};
  const std::string dir = ::testing::TempDir() + "/far_handoff";
  EXPECT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = engine::DType::kBF16}).ok());
  return dir;
}

std::unique_ptr<engine::StepEngine> MakeEngine(const std::string& dir,
                                               std::shared_ptr<engine::FarDevice> device) {
  engine::ModelEngineOptions options;
  options.block_tokens = kBlockTokens;
  options.num_blocks = 2 * kBlocks;
  options.max_batch_tokens = kTokens;
  options.ring_segment_bytes = 1 << 16;  // the device is small
  std::unique_ptr<engine::Ops> ops = *engine::MakeCpuOps({.threads = 1});
  if (device != nullptr) ops = engine::MakeFarOps(device, std::move(ops));
  auto made = engine::MakeModelEngine(
      dir, std::move(ops), device ? engine::ShareFarDevice(device) : engine::MakeCpuDevice(),
      options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// The layers of one step after the other, told as they are written: by whoever looks, and before
// the next step.
class Layers {
 public:
  Layers(engine::StepEngine* engine, std::function<void(int layer, int64_t end)> written)
      : engine_(engine), written_(std::move(written)) {}

  void Begin(int64_t end) {
    const std::lock_guard lock(mu_);
    end_ = end;
    told_ = 0;
  }
  void Look() {
    const std::lock_guard lock(mu_);
    if (const auto layers = engine_->Layers(); layers.has_value()) TellUpTo(layers->written);
  }
  void End(int layers) {
    const std::lock_guard lock(mu_);
    TellUpTo(layers);
  }
  int told() const {
    const std::lock_guard lock(mu_);
    return told_;
  }

 private:
  void TellUpTo(int written) {
    while (told_ < written) written_(told_++, end_);
  }

  engine::StepEngine* const engine_;
  const std::function<void(int layer, int64_t end)> written_;
  mutable std::mutex mu_;
  int64_t end_ = 0;
  int told_ = 0;
};

class FarHandoff : public ::testing::TestWithParam<engine::PoolKind> {
 protected:
  // The prompt in `chunks` steps, into blocks 0, 2, 4, … When a step has queued a layer, it goes on
  // once the layer before is told.
  void Prefill(engine::StepEngine* engine, int chunks, Layers* layers) {
    auto ids = std::make_shared<std::vector<int32_t>>(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) {
      (*ids)[static_cast<size_t>(i)] = static_cast<int32_t>(i * i % 50);
    }
    const auto sequence = engine->Admit(
        {.prompt = ids, .sampling = std::make_shared<const engine::SamplingParams>()});
    ASSERT_TRUE(sequence.ok()) << sequence.status();
    for (int c = 0; c < chunks; ++c) {
      const int64_t first = kTokens * c / chunks, end = kTokens * (c + 1) / chunks;
      engine::PlannedSequence planned{.sequence = *sequence, .position = first};
      planned.count = end - first;
      for (int32_t b = 0; b < kBlocks; ++b) planned.blocks.push_back({2 * b});
      engine::StepPlan plan;
      plan.sequences = {std::move(planned)};
      plan.layer_queued = [&](int layer) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (layers->told() < layer && std::chrono::steady_clock::now() < until) layers->Look();
        EXPECT_GE(layers->told(), layer) << "nothing is told before the step ends";
      };
      layers->Begin(end);
      const engine::CompletedStep ran = RunPlan(engine, std::move(plan));
      ASSERT_TRUE(ran.status.ok()) << ran.status;
      layers->End(ran.layers);
    }
    engine->Release(*sequence);
  }

  const std::string dir_ = MakeModel();
};

TEST_P(FarHandoff, LayersLeaveWhileLaterOnesCompute) {
  const auto host = MakeEngine(dir_, nullptr);
  const engine::KvSpec kv = host->Spec().kv;
  const auto block_bytes = static_cast<size_t>(kv.BlockBytes());
  for (const int chunks : {1, 3, 40}) {
    SCOPED_TRACE(chunks);
    Layers nobody(host.get(), [](int, int64_t) {});
    Prefill(host.get(), chunks, &nobody);
    // Source: the engine's own memory. Target: a pool of another device.
    engine::TestingNetwork network(GetParam());
    const auto device = std::make_shared<engine::FarDevice>(64 << 20);
    const auto transport = network.Make(device);
    const auto engine = MakeEngine(dir_, device);
    std::vector<engine::RegionId> regions;
    for (const engine::KvRegion& region : engine->KvRegions()) {
      regions.push_back(transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
    }
    engine::TestingPool target(&network, kv);
    std::atomic<bool> ended{false};
    std::optional<std::vector<int64_t>> bytes;
    absl::Status failed;
    engine::HandoffSender sender(transport.get(), kv, regions, std::chrono::seconds(20),
                                 {.done =
                                      [&](engine::HandoffKey, std::vector<int64_t> moved) {
                                        bytes = std::move(moved);
                                        ended = true;
                                      },
                                  .failed =
                                      [&](engine::HandoffKey, absl::Status status) {
                                        failed = std::move(status);
                                        ended = true;
                                      },
                                  .stopped = [&](engine::HandoffKey) { ended = true; }});
    std::vector<BlockId> local, remote;
    for (int32_t b = 0; b < kBlocks; ++b) {
      local.push_back({2 * b});
      remote.push_back({static_cast<int32_t>(kBlocks) - 1 - b});
    }
    sender.Open(kKey, engine::WholePrompt(local), kTokens);
    sender.Grant(kKey, {.targets = {{remote, target.description}},
                        .post_until = std::chrono::steady_clock::now() + std::chrono::seconds(60),
                        .peer = "decode.example:7202"});
    Layers layers(engine.get(), [&](int layer, int64_t end) { sender.Written(kKey, layer, end); });
    std::thread source_progress([&] {
      while (!ended) {
        layers.Look();
        sender.Pump(std::chrono::milliseconds(1));
      }
    });
    std::thread target_progress([&] {
      std::vector<engine::TransferCompletion> none;
      while (!ended) target.transport->Poll(16, std::chrono::milliseconds(1), &none);
    });
    Prefill(engine.get(), chunks, &layers);
    if (HasFatalFailure()) ended = true;
    source_progress.join();
    target_progress.join();
    ASSERT_TRUE(bytes.has_value()) << failed;
    EXPECT_EQ(*bytes,
              std::vector<int64_t>(static_cast<size_t>(kv.num_layers), kBlocks * kv.BlockBytes()));
    for (int layer = 0; layer < kv.num_layers; ++layer) {
      const auto* expected =
          static_cast<const std::byte*>(host->KvRegions()[static_cast<size_t>(layer)].base);
      for (size_t b = 0; b < local.size(); ++b) {
        EXPECT_EQ(
            std::memcmp(target.Block(layer, remote[b]),
                        expected + static_cast<size_t>(local[b].value) * block_bytes, block_bytes),
            0)
            << "layer " << layer << " block " << b;
      }
    }
    const std::vector<engine::HandoffTotals> totals = sender.Totals();
    ASSERT_EQ(totals.size(), 1u);
    EXPECT_EQ(totals[0].path,
              GetParam() == engine::PoolKind::kFarDirect ? "direct" : "host-staged");
    EXPECT_EQ(totals[0].peer, "decode.example:7202");
    EXPECT_GT(totals[0].busy_seconds, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, FarHandoff,
                         ::testing::Values(engine::PoolKind::kFar, engine::PoolKind::kFarDirect),
                         [](const auto& info) { return engine::NameOf(info.param); });

}  // namespace
}  // namespace skein
