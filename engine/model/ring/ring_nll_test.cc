// Ring steps on deploy/models/fledgling and real text: the teacher-forced likelihood of more
// than 2,000 tokens, their KV and what is said after them are those of one rank, for KV heads fewer
// than, equal to and more than ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/kv_compare.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/model/testing/widen_checkpoint.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr char kFledgling[] = "deploy/models/fledgling";  // 8 heads, 4 of KV
constexpr int kRanksMax = 8;
constexpr int64_t kTokens = 2077;  // a last block of 13 tokens

struct Precision {
  std::string name;
  DType dtype;
  double nll_relative;  // the limit for any layout: 1e-5 in f32, 1e-3 in bf16
  double kv;            // absolute, of values of size about 1 to 10
};

const Precision kF32 = {"f32", DType::kF32, 1e-5, 1e-3};
const Precision kBf16 = {"bf16", DType::kBF16, 1e-3, 0.5};

// The tokens behind the prompt and the logits that each was chosen from, but for the first.
struct Continuation {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
};

int32_t Likeliest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double RootMeanSquare(const Continuation& a, const Continuation& b) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    for (size_t v = 0; v < a.logits[i].size(); ++v, ++count) {
      const double difference = double{a.logits[i][v]} - double{b.logits[i][v]};
      sum += difference * difference;
    }
  }
  return std::sqrt(sum / static_cast<double>(count));
}

// Engines for one precision, made once, and what one of them says alone.
struct World {
  explicit World(const Precision& precision) {
    std::string dir = kFledgling;
    if (precision.dtype == DType::kF32) {
      dir = ::testing::TempDir() + "/ring_nll_f32";
      WidenCheckpoint(kFledgling, dir);
    }
    ModelEngineOptions options;
    options.num_blocks = 300;
    options.max_batch_tokens = 2200;
    options.kv_dtype = precision.dtype;
    options.ring_segment_bytes = 1 << 20;  // several segments
    for (int r = 0; r <= kRanksMax; ++r) {
      auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
      EXPECT_TRUE(engine.ok()) << engine.status();
      owned.push_back(*std::move(engine));
      if (r < kRanksMax) engines.push_back(owned.back().get());
    }
    ids = EvalText(kTokens);
    expected = RunPlain(*owned.back(), ids);
    ranks = std::make_unique<RingRanks>(engines, [this] { return hub.MakeFabric(); });
  }

  LocalHub hub;
  std::vector<std::unique_ptr<Engine>> owned;  // the last one runs alone
  std::vector<Engine*> engines;
  std::unique_ptr<RingRanks> ranks;
  std::vector<int32_t> ids;
  RingOutcome expected;
};

class RingNll : public ::testing::TestWithParam<Precision> {
 protected:
  static World& WorldOf(const Precision& precision) {
    static std::map<std::string, std::unique_ptr<World>> worlds;
    std::unique_ptr<World>& world = worlds[precision.name];
    if (world == nullptr) world = std::make_unique<World>(precision);
    return *world;
  }

  void ExpectSame(const RingOutcome& actual) const {
    ASSERT_EQ(actual.logprobs.size(), expected_.logprobs.size());
    EXPECT_NEAR(actual.Nll() / expected_.Nll(), 1.0, GetParam().nll_relative);
    EXPECT_EQ(actual.token, expected_.token);
    ASSERT_EQ(actual.places.size(), expected_.places.size());
    EXPECT_LE(LargestKvDifference(engines_, actual.places, *plain_, expected_.places, kTokens),
              GetParam().kv);
  }

  void ExpectContinues(int tp);

  World& world_ = WorldOf(GetParam());
  const std::vector<Engine*>& engines_ = world_.engines;
  Engine* const plain_ = world_.owned.back().get();
  RingRanks* const ranks_ = world_.ranks.get();
  const std::vector<int32_t>& ids_ = world_.ids;
  const RingOutcome& expected_ = world_.expected;
};

std::vector<int> FirstRanks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// 130 blocks: 65 full chunks for two ranks do not divide evenly into 4, 8 or 16 shards.
TEST_P(RingNll, RingAttention) {
  for (const int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    const RingOutcome actual = ranks_->Run({.ids = ids_, .chunks = {{130, FirstRanks(ranks)}}});
    ExpectSame(actual);
    EXPECT_EQ(actual.blocks_moved, 0);
  }
}

// (SP, TP): each tp neighbours by rank share the dense part.
TEST_P(RingNll, NeighboursShareTheDensePart) {
  for (const auto& [sp, tp] : {std::pair(1, 2), {2, 2}, {1, 4}, {4, 2}, {2, 4}, {1, 8}}) {
    SCOPED_TRACE(testing::Message() << "(" << sp << ", " << tp << ")");
    ExpectSame(ranks_->Run({.ids = ids_, .chunks = {{130, FirstRanks(sp * tp), tp}}}));
  }
}

// Chunks of one prompt may differ in tp.
TEST_P(RingNll, ChunksThatShareByOtherNumbers) {
  const RingPrompt prompt = {.ids = ids_,
                             .chunks = {{31, {4, 2}, 2},
                                        {30, {1, 2, 3, 4}},
                                        {30, {4, 3, 2, 1}, 4},
                                        {39, {0, 7, 6, 5, 4, 3, 2, 1}, 2}}};
  ExpectSame(ranks_->Run(prompt));
}

TEST_P(RingNll, CdspOverGrowingMembers) {
  const RingOutcome two = ranks_->Run({.ids = ids_, .chunks = {{31, {3}}, {99, {3, 6}}}});
  ExpectSame(two);
  EXPECT_EQ(two.blocks_moved, 15);
  const RingOutcome four =
      ranks_->Run({.ids = ids_, .chunks = {{31, {5}}, {40, {1, 5}}, {59, {0, 1, 2, 5}}}});
  ExpectSame(four);
  const RingOutcome eight =
      ranks_->Run({.ids = ids_, .chunks = {{31, {4, 2}}, {60, {1, 2, 3, 4}}, {39, FirstRanks(8)}}});
  ExpectSame(eight);
}

// What `engine` says behind a prompt whose KV lies in its first blocks: `given`'s tokens, or the
// sampled ones where it is null.
Continuation Continue(Engine& engine, int32_t first, const std::vector<int32_t>* given) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<int32_t> table(engine.Spec().kv.num_blocks);
  std::iota(table.begin(), table.end(), 0);
  Continuation said = {.tokens = {first}, .logits = {}};
  while (said.tokens.size() < 40) {
    SequenceStep step;
    step.tokens = std::span(said.tokens).last(1);
    step.position = kTokens + static_cast<int64_t>(said.tokens.size()) - 1;
    step.block_table = table;
    step.sample = true;
    step.sampling = &greedy;
    step.token_index = said.tokens.size();
    step.want_logits = true;
    std::vector<SequenceResult> results;
    EXPECT_TRUE(engine.Step({&step, 1}, nullptr, &results).ok());
    const int32_t sampled = results[0].sampled.token;
    EXPECT_EQ(sampled, Likeliest(results[0].logits));
    said.tokens.push_back(given == nullptr ? sampled : (*given)[said.tokens.size()]);
    said.logits.push_back(std::move(results[0].logits));
  }
  return said;
}

// A decode instance goes on from the blocks that eight ranks computed, each `tp` of which shared
// the dense part. All are given the same tokens: in bf16 the likeliest one may be another where two
// are nearly alike. How far bf16 rounds differs by instruction set, so what the ring adds to it is
// judged by the distances from f32.
void RingNll::ExpectContinues(int tp) {
  const RingOutcome actual = ranks_->Run(
      {.ids = ids_, .chunks = {{50, {0, 1, 2}}, {80, FirstRanks(8), tp}}, .score = false});
  const int32_t first = RunPlain(*plain_, ids_, /*score=*/false).token;
  EXPECT_EQ(actual.token, first);
  const Continuation expected = Continue(*plain_, first, nullptr);
  SpoilKv(*plain_);
  const auto bytes = static_cast<size_t>(plain_->Spec().kv.BlockBytes());
  for (size_t layer = 0; layer < plain_->KvRegions().size(); ++layer) {
    auto* to = static_cast<std::byte*>(plain_->KvRegions()[layer].base);
    for (size_t block = 0; block < actual.places.size(); ++block) {
      const BlockPlace& place = actual.places[block];
      const auto* from = static_cast<const std::byte*>(
          engines_[static_cast<size_t>(place.engine)]->KvRegions()[layer].base);
      std::memcpy(to + block * bytes, from + static_cast<size_t>(place.block) * bytes, bytes);
    }
  }
  const Continuation said = Continue(*plain_, first, &expected.tokens);
  if (GetParam().dtype == DType::kF32) {
    EXPECT_LE(RootMeanSquare(said, expected), 1e-5);
    for (size_t i = 0; i < said.logits.size(); ++i) {
      EXPECT_EQ(Likeliest(said.logits[i]), expected.tokens[i + 1]) << i;
    }
    return;
  }
  Engine& exact = *WorldOf(kF32).owned.back();
  RunPlain(exact, ids_, /*score=*/false);
  const Continuation truth = Continue(exact, first, &expected.tokens);
  // 0.98 to 1.04 of it with the four instruction sets.
  EXPECT_LE(RootMeanSquare(said, truth), 1.25 * RootMeanSquare(expected, truth));
}

TEST_P(RingNll, GreedyContinuation) { ExpectContinues(1); }
TEST_P(RingNll, GreedyContinuationWhereNeighboursShareTheDensePart) { ExpectContinues(4); }

INSTANTIATE_TEST_SUITE_P(All, RingNll, ::testing::Values(kF32, kBf16),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::engine
