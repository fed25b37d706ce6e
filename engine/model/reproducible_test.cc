// A token's logits and KV are the same bits however its sequence is run: token by token or in
// slices cut anywhere, alone or in a batch, by one rank, in a ring, or by a group in any mode.
// docs/reproducibility.md says how.
#include <algorithm>
#include <cstring>
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
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kVocab = 203;

std::unique_ptr<Ops> MakeOps(int threads = 2) {
  return MakeCpuOps({.threads = threads, .reproducible = true}).value();
}

struct Shape {
  const char* name;
  DType dtype;
  int heads;
  int kv_heads;
  const char* architecture;
  bool biased = false;
};

std::string WriteModel(const Shape& shape) {
  const nlohmann::json config = {{"architectures", {shape.architecture}},
                                 {"hidden_size", 72},
                                 {"intermediate_size", 172},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", shape.heads},
                                 {"num_key_value_heads", shape.kv_heads},
                                 {"head_dim", 12},
                                 {"attention_bias", shape.biased},
                                 {"mlp_bias", shape.biased},
                                 {"vocab_size", kVocab},
                                 {"max_position_embeddings", 4096}};
  const std::string dir = ::testing::TempDir() + "/reproducible_" + shape.name;
  const absl::Status written =
      tools::WriteRandomCheckpoint(dir, config, {.dtype = shape.dtype, .seed = 3, .shards = 1});
  EXPECT_TRUE(written.ok()) << written;
  return dir;
}

ModelEngineOptions Options() {
  ModelEngineOptions options;
  options.num_blocks = 700;
  options.max_batch_tokens = 2048;
  return options;
}

std::unique_ptr<Engine> MakeAlone(const std::string& dir, int threads = 2) {
  auto engine = MakeModelEngine(dir, MakeOps(threads), MakeCpuDevice(), Options());
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

std::vector<int32_t> RandomIds(size_t count, std::mt19937* random, int vocab = kVocab) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>((*random)() % static_cast<uint32_t>(vocab));
  return ids;
}

using Logits = std::map<size_t, std::vector<float>>;  // by tokens run

// Runs texts of given slices together, a slice of each a step, and returns what the first has
// after each slice.
struct Text {
  std::vector<int32_t> ids;
  std::vector<size_t> slices;
  std::vector<int32_t> blocks = {};
  size_t slice = 0;
  size_t done = 0;
};

Logits RunTexts(Engine& engine, std::vector<Text> texts, std::mt19937* random) {
  int32_t next_block = 0;
  const auto per_block = static_cast<size_t>(engine.Spec().kv.block_tokens);
  for (Text& text : texts) {
    text.blocks.resize(text.ids.size() / per_block + 1);
    std::iota(text.blocks.begin(), text.blocks.end(), next_block);
    next_block += static_cast<int32_t>(text.blocks.size());
  }
  EXPECT_LE(next_block, engine.Spec().kv.num_blocks);
  Logits logits;
  while (texts[0].slice < texts[0].slices.size()) {
    std::vector<size_t> order;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].slice < texts[i].slices.size()) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), *random);
    std::vector<SequenceStep> steps;
    for (const size_t i : order) {
      Text& text = texts[i];
      SequenceStep step;
      step.tokens = std::span(text.ids).subspan(text.done, text.slices[text.slice]);
      step.position = static_cast<int64_t>(text.done);
      step.block_table = text.blocks;
      step.want_logits = true;
      steps.push_back(step);
      text.done += text.slices[text.slice++];
    }
    std::vector<SequenceResult> results;
    const absl::Status status = engine.Step(steps, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return logits;
    const auto place = std::find(order.begin(), order.end(), size_t{0}) - order.begin();
    EXPECT_TRUE(results[static_cast<size_t>(place)].status.ok());
    logits[texts[0].done] = results[static_cast<size_t>(place)].logits;
  }
  return logits;
}

std::vector<size_t> RandomSlices(size_t count, size_t most, std::mt19937* random) {
  std::vector<size_t> slices;
  for (size_t done = 0; done < count; done += slices.back()) {
    slices.push_back(std::min(count - done, 1 + (*random)() % most));
  }
  return slices;
}

// Every one of `actual` is what `expected` has after as many tokens.
void ExpectSame(const Logits& actual, const Logits& expected) {
  ASSERT_FALSE(actual.empty());
  for (const auto& [tokens, logits] : actual) {
    const std::vector<float>& other = expected.at(tokens);
    ASSERT_EQ(logits.size(), other.size());
    ASSERT_FALSE(logits.empty());
    ASSERT_EQ(std::memcmp(logits.data(), other.data(), logits.size() * sizeof(float)), 0)
        << "after " << tokens << " tokens";
  }
}

// Blocks [0, blocks) of all layers.
std::string KvOf(const Engine& engine, int64_t blocks) {
  std::string bytes;
  for (const KvRegion& region : engine.KvRegions()) {
    bytes.append(static_cast<const char*>(region.base),
                 static_cast<size_t>(blocks * engine.Spec().kv.BlockBytes()));
  }
  return bytes;
}

// Decode is the measure: each token alone, one a step, on one thread.
Logits OneByOne(Engine& engine, const std::vector<int32_t>& ids) {
  std::mt19937 random(1);
  return RunTexts(engine, {{ids, std::vector<size_t>(ids.size(), 1)}}, &random);
}

class ReproducibleModel : public testing::TestWithParam<Shape> {};

// Slices, batches of 1 to 17, and with them a prompt and its generated tokens run again after a
// preemption: all are what decode computes.
TEST_P(ReproducibleModel, SlicesAndBatches) {
  const std::string dir = WriteModel(GetParam());
  std::mt19937 random(7);
  const std::vector<int32_t> ids = RandomIds(1200, &random);
  const auto alone = MakeAlone(dir, 1), engine = MakeAlone(dir);
  const Logits expected = OneByOne(*alone, ids);
  const std::string kv = KvOf(*alone, 75);
  for (const size_t most : {3, 17, 70, 200, 700, 1200}) {
    SCOPED_TRACE(most);
    const size_t others = most >= 17 ? most % 17 : 0;
    std::vector<Text> texts = {
        {ids, most == 1200 ? std::vector<size_t>{1200} : RandomSlices(1200, most, &random)}};
    for (size_t i = 0; i < others; ++i) {
      const size_t count = 1 + random() % 500;
      texts.push_back(
          {RandomIds(count, &random), RandomSlices(count, 1 + random() % 100, &random)});
    }
    ExpectSame(RunTexts(*engine, texts, &random), expected);
    ASSERT_EQ(KvOf(*engine, 75), kv);
  }
  for (size_t batch = 1; batch <= 17; ++batch) {
    SCOPED_TRACE(batch);
    std::vector<Text> texts = {{ids, RandomSlices(40, 9, &random)}};
    for (size_t i = 1; i < batch; ++i) {
      texts.push_back({RandomIds(30, &random), RandomSlices(30, 1, &random)});
    }
    ExpectSame(RunTexts(*engine, texts, &random), expected);
  }
}

// Rings of 1 to 8 ranks, chunks whose members grow, the dense part shared by any of them, history
// dealt anew: the token, every logprob and every block of KV.
TEST_P(ReproducibleModel, Rings) {
  const std::string dir = WriteModel(GetParam());
  LocalHub hub;
  std::vector<std::unique_ptr<Engine>> owned;
  std::vector<Engine*> engines;
  for (int i = 0; i < 8; ++i) {
    owned.push_back(MakeAlone(dir, 1));
    engines.push_back(owned.back().get());
  }
  RingRanks ranks(engines, [&] { return hub.MakeFabric(); });
  const auto alone = MakeAlone(dir);
  std::mt19937 random(11);
  for (int trial = 0; trial < 12; ++trial) {
    SCOPED_TRACE(trial);
    RingPrompt prompt;
    prompt.ids = RandomIds(2 + random() % (trial % 3 == 0 ? 1700 : 600), &random);
    prompt.seed = static_cast<uint32_t>(random());
    prompt.even = trial % 2 == 0;
    prompt.score = trial % 4 != 3;
    int64_t blocks = (static_cast<int64_t>(prompt.ids.size()) + 15) / 16;
    size_t members = 1 + static_cast<size_t>(trial) % 8;
    std::vector<int> order(8);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int chunks = 3; blocks > 0; --chunks) {
      const int64_t size = chunks <= 1 ? blocks : 1 + static_cast<int64_t>(random() % blocks);
      blocks -= size;
      int tp = 1;
      while (members % (2 * static_cast<size_t>(tp)) == 0 && random() % 2 == 0) tp *= 2;
      prompt.chunks.push_back({size, {order.begin(), order.begin() + members}, tp});
      members = std::min<size_t>(8, members + random() % 4);
    }
    const RingOutcome expected = RunPlain(*alone, prompt.ids, prompt.score);
    const RingOutcome actual = ranks.Run(prompt);
    ASSERT_EQ(actual.token, expected.token);
    ASSERT_EQ(actual.logprobs, expected.logprobs);
    ASSERT_EQ(actual.places.size(), expected.places.size());
    const int64_t tokens = static_cast<int64_t>(prompt.ids.size());
    for (size_t b = 0; b < actual.places.size(); ++b) {
      for (int layer = 0; layer < 2; ++layer) {
        for (int head = 0; head < GetParam().kv_heads; ++head) {
          for (const bool values : {false, true}) {
            const int64_t count = std::min<int64_t>(16, tokens - static_cast<int64_t>(b) * 16);
            const int32_t at[] = {actual.places[b].block}, wanted[] = {expected.places[b].block};
            ASSERT_EQ(KvOfHead(*engines[static_cast<size_t>(actual.places[b].engine)], at, {},
                               count, layer, head, values),
                      KvOfHead(*alone, wanted, {}, count, layer, head, values))
                << "block " << b;
          }
        }
      }
    }
  }
}

// Every mode of groups of 2, 4 and 8, mixed within one sequence.
TEST_P(ReproducibleModel, Groups) {
  const std::string dir = WriteModel(GetParam());
  std::mt19937 random(13);
  const std::vector<int32_t> ids = RandomIds(700, &random);
  const auto alone = MakeAlone(dir, 1);
  const Logits expected = OneByOne(*alone, ids);
  for (const int count : {2, 4, 8}) {
    std::vector<std::vector<GroupMode>> choices = {ModesOf(count)};
    for (const GroupMode mode : ModesOf(count)) choices.push_back({mode});
    for (const std::vector<GroupMode>& modes : choices) {
      SCOPED_TRACE(testing::Message()
                   << count << " ranks, " << modes.size() << " modes, sp " << modes[0].sp);
      TestingGroupOptions options;
      options.ranks = count;
      options.modes = modes;
      options.engine = Options();
      options.make_rank = nullptr;
      LocalHub hub;
      options.make_rank = [&](int) {
        return TestingRankParts{MakeOps(1), MakeCpuDevice(), hub.MakeFabric()};
      };
      const auto group = GroupOfEngines::Make(dir, options);
      ASSERT_NE(group, nullptr);
      std::vector<Text> texts = {{ids, RandomSlices(640, 150, &random)}};
      texts[0].slices.resize(texts[0].slices.size() + 5, 1);
      texts.push_back({RandomIds(60, &random), RandomSlices(60, 20, &random)});
      ExpectSame(RunTexts(*group, texts, &random), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ReproducibleModel,
    testing::Values(Shape{"f32", DType::kF32, 8, 2, "LlamaForCausalLM"},
                    Shape{"bf16", DType::kBF16, 8, 4, "LlamaForCausalLM", true},
                    Shape{"bf16_norms", DType::kBF16, 16, 8, "Qwen3ForCausalLM"}),
    [](const auto& info) { return info.param.name; });

// Real text on deploy/models/fledgling.
TEST(ReproducibleFledgling, SlicesAreDecode) {
  const auto alone = MakeAlone("deploy/models/fledgling", 1);
  const auto engine = MakeAlone("deploy/models/fledgling");
  std::mt19937 random(17);
  const std::vector<int32_t> ids = RandomIds(900, &random, 2000);
  const Logits expected = OneByOne(*alone, ids);
  for (const size_t most : {30, 400, 900}) {
    std::vector<Text> texts = {{ids, RandomSlices(900, most, &random)}};
    for (int i = 0; i < 5; ++i) {
      texts.push_back({RandomIds(100, &random, 2000), RandomSlices(100, 30, &random)});
    }
    ExpectSame(RunTexts(*engine, texts, &random), expected);
  }
}

}  // namespace
}  // namespace skein::engine
