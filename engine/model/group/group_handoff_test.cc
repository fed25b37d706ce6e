// A prompt that one instance computed is handed over into the blocks of a bound group, and the
// group goes on from there: as the instance would, and as the group does that computed the prompt
// itself.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/handoff/handoff_sender.h"
#include "engine/handoff/layout_map.h"
#include "engine/handoff/testing/whole_prompt.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/sampling/philox.h"
#include "engine/transport/loopback_transport.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kVocabulary = 97;
constexpr int kPrompt = 45;  // tokens: neither layout's blocks are full
constexpr int kOutput = 24;
constexpr HandoffKey kKey = {{1, 2}, {3}};

struct Case {
  int kv_heads = 1;
  DType dtype = DType::kF32;
};

ModelEngineOptions SmallPool() {
  ModelEngineOptions options;
  options.num_blocks = 128;
  options.block_tokens = 4;
  options.max_batch_tokens = 256;
  return options;
}

class GroupHandoffTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/group_handoff_" + std::to_string(getpid());
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 57},
                                   {"num_hidden_layers", 3},
                                   {"num_attention_heads", 8},
                                   {"num_key_value_heads", GetParam().kv_heads},
                                   {"head_dim", 6},
                                   {"vocab_size", kVocabulary},
                                   {"max_position_embeddings", 512},
                                   {"rms_norm_eps", 1e-5},
                                   {"hidden_act", "silu"}};
    const absl::Status written =
        tools::WriteRandomCheckpoint(dir_, config, {.dtype = GetParam().dtype, .seed = 3});
    ASSERT_TRUE(written.ok()) << written;
    for (size_t i = 0; i < kPrompt; ++i) {
      prompt_.push_back(static_cast<int32_t>(UniformSample(5, i) * kVocabulary));
    }
    for (int32_t block = 0; block < (kPrompt + kOutput + 3) / 4; ++block) {
      table_.push_back(100 - 3 * block);
    }
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Engine> Alone() {
    auto engine = MakeModelEngine(dir_, *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto}),
                                  MakeCpuDevice(), SmallPool());
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  std::unique_ptr<GroupOfEngines> Group(int ranks) {
    return GroupOfEngines::Make(dir_, {ranks, {{1, ranks}}, /*cpu_ops=*/true, SmallPool()});
  }

  // Runs the tokens from `position` on; the greedy next one.
  int32_t Run(Engine& engine, std::vector<int32_t> tokens, int64_t position) {
    SequenceStep step;
    step.tokens = tokens;
    step.position = position;
    step.block_table = table_;
    step.sample = true;
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    step.sampling = &greedy;
    std::vector<SequenceResult> results;
    const absl::Status ran = engine.Step(std::span(&step, 1), nullptr, &results);
    EXPECT_TRUE(ran.ok()) << ran;
    if (!ran.ok()) return -1;
    EXPECT_TRUE(results.at(0).status.ok()) << results[0].status;
    return results[0].sampled.token;
  }
  // With the tokens behind the prompt, of which the first one is `first`.
  std::vector<int32_t> Continue(Engine& engine, int32_t first) {
    std::vector<int32_t> output = {first};
    while (output.size() < kOutput) {
      const auto position = kPrompt + static_cast<int64_t>(output.size()) - 1;
      output.push_back(Run(engine, {output.back()}, position));
    }
    return output;
  }

  // From where `from` has the prompt to where the group's ranks would have it.
  void Handoff(const Engine& from, GroupOfEngines* group, int ranks) {
    const auto network = MakeLoopbackFabric();
    const auto writer = MakeLoopbackTransport(network);
    std::optional<absl::Status> end;
    HandoffSender sender(writer.get(), from.Spec().kv, Register(writer.get(), from),
                         std::chrono::seconds(10),
                         {.done = [&](HandoffKey, const auto&) { end = absl::OkStatus(); },
                          .failed = [&](HandoffKey, const absl::Status& why) { end = why; },
                          .stopped = [](HandoffKey) { FAIL() << "stopped"; }});
    std::vector<std::unique_ptr<Transport>> readers;
    HandoffGrant grant{.targets = {}, .post_until = std::chrono::steady_clock::time_point::max()};
    const auto blocks = [&](const std::vector<int32_t>& table, KvLayout layout) {
      std::vector<BlockId> named;
      for (int64_t i = 0; i < BlocksOfLayout(from.Spec().kv, layout, kPrompt); ++i) {
        named.push_back({table.at(static_cast<size_t>(i))});
      }
      return named;
    };
    for (int rank = 0; rank < ranks; ++rank) {
      readers.push_back(MakeLoopbackTransport(network));
      const auto regions = Register(readers.back().get(), group->engine(rank));
      grant.targets.push_back({blocks(group->TableOf(rank, table_), KvLayout{ranks}),
                               *readers.back()->Describe(regions)});
    }
    sender.Open(kKey, WholePrompt(blocks(table_, {1})), kPrompt);
    for (int layer = 0; layer < from.Spec().kv.num_layers; ++layer) {
      sender.Written(kKey, layer, kPrompt);
    }
    sender.Grant(kKey, std::move(grant));
    std::vector<TransferCompletion> none;
    for (int i = 0; i < 100'000 && !end.has_value(); ++i) {
      sender.Pump({});
      for (auto& reader : readers) reader->Poll(16, {}, &none);
    }
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->ok()) << *end;
  }
  static std::vector<RegionId> Register(Transport* transport, const Engine& engine) {
    std::vector<RegionId> regions;
    for (const KvRegion& region : engine.KvRegions()) {
      regions.push_back(transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
    }
    return regions;
  }

  // Calls `compare` with the elements of each head of the prompt, of both.
  template <class Compare>
  void ForEachHead(const Engine& alone, GroupOfEngines* group, const Compare& compare) {
    const KvSpec& kv = alone.Spec().kv;
    for (int layer = 0; layer < kv.num_layers; ++layer) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        for (const bool values : {false, true}) {
          SCOPED_TRACE(::testing::Message() << "layer " << layer << " head " << head);
          compare(KvOfHead(alone, table_, {1}, kPrompt, layer, head, values),
                  group->KvOf(table_, kPrompt, layer, head, values));
        }
      }
    }
  }

  std::string dir_;
  std::vector<int32_t> prompt_, table_;
};

TEST_P(GroupHandoffTest, TheGroupGoesOnFromAnInstancesKv) {
  const auto alone = Alone();
  const int32_t first = Run(*alone, prompt_, 0);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const auto group = Group(ranks);
    ASSERT_NE(group, nullptr);
    Handoff(*alone, group.get(), ranks);
    ForEachHead(*alone, group.get(),
                [](const auto& expected, const auto& actual) { EXPECT_EQ(actual, expected); });
    const auto itself = Group(ranks);
    ASSERT_NE(itself, nullptr);
    EXPECT_EQ(Run(*itself, prompt_, 0), first);
    // A rank's slice of a product, and the sum over ranks, are rounded otherwise.
    const double tolerance = GetParam().dtype == DType::kF32 ? 1e-5 : 2e-2;
    ForEachHead(*alone, itself.get(), [&](const auto& expected, const auto& actual) {
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], tolerance);
      }
    });
    const std::vector<int32_t> output = Continue(*group, first);
    EXPECT_EQ(output, Continue(*itself, first));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupHandoffTest,
                         ::testing::Values(Case{1}, Case{2}, Case{4}, Case{8},
                                           Case{1, DType::kBF16}, Case{2, DType::kBF16},
                                           Case{4, DType::kBF16}, Case{8, DType::kBF16}),
                         [](const auto& info) {
                           return std::string(info.param.dtype == DType::kF32 ? "F32" : "BF16") +
                                  "KvHeads" + std::to_string(info.param.kv_heads);
                         });

}  // namespace
}  // namespace skein::engine
