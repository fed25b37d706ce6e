// Groups of small random checkpoints, each rank in a thread: every head count, bias and norm, in
// every mode and in modes that change from step to step, says what one rank says.
#include "engine/model/group/group_engine.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "engine/device/memory_budget.h"
#include "engine/model/group/group_comms.h"
#include "engine/model/layers/sliced_weights.h"
#include "engine/model/testing/lone_failures.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/token_sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kVocabulary = 97;  // which no group divides

json Config(const char* patch) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"hidden_size", 32},
                 {"intermediate_size", 57},  // nor this
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 6},
                 {"vocab_size", kVocabulary},
                 {"max_position_embeddings", 512},
                 {"rms_norm_eps", 1e-5},
                 {"hidden_act", "silu"}};
  config.update(json::parse(patch));
  return config;
}

std::vector<int32_t> Text(size_t count, uint64_t seed) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int32_t>(UniformSample(seed, i) * kVocabulary);
  }
  return ids;
}

ModelEngineOptions SmallPool() {
  ModelEngineOptions options;
  options.num_blocks = 128;
  options.block_tokens = 4;
  options.max_batch_tokens = 256;
  return options;
}

// A checkpoint on disk for one test.
class Checkpoint {
 public:
  explicit Checkpoint(const char* patch, DType dtype = DType::kF32) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    dir_ = ::testing::TempDir() + "/" + name + std::to_string(made_++);
    const absl::Status written =
        tools::WriteRandomCheckpoint(dir_, Config(patch), {.dtype = dtype, .seed = 3});
    EXPECT_TRUE(written.ok()) << written;
  }
  ~Checkpoint() { std::filesystem::remove_all(dir_); }

  const std::string& dir() const { return dir_; }
  std::unique_ptr<Engine> Alone(bool cpu_ops = true) const {
    std::unique_ptr<Ops> ops = std::make_unique<ReferenceOps>();
    if (cpu_ops) ops = *MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto});
    auto engine = MakeModelEngine(dir_, std::move(ops), MakeCpuDevice(), SmallPool());
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  std::unique_ptr<GroupOfEngines> Group(std::vector<GroupMode> modes, bool cpu_ops = true) const {
    const int ranks = modes[0].ranks();
    return GroupOfEngines::Make(dir_, {ranks, std::move(modes), cpu_ops, SmallPool()});
  }

 private:
  static inline int made_ = 0;
  std::string dir_;
};

// Graphs of a rank's plain steps hold the addresses of the buffers that its group steps use, too.
TEST(GroupForwardTest, BuffersNeverChangePlaces) {
  const Checkpoint checkpoint("{}");
  constexpr int kRanks = 4;
  const std::vector<GroupMode> modes = {{1, 4}, {4, 1}, {2, 2}};
  LocalHub hub;
  TestingRanks ranks([&] { return hub.MakeFabric(); }, kRanks);
  const std::vector<int> members = {0, 1, 2, 3};
  const std::vector<std::string> addresses = ranks.Addresses(members);
  const std::vector<int32_t> table = {0, 1}, other = {2, 3};
  Batch batch;
  for (const auto& blocks : {&table, &other}) {
    const int64_t first = batch.tokens();
    batch.sequences.push_back({first, 3, 0, *blocks, KvLayout{kRanks}});
    for (int i = 0; i < 3; ++i) {
      batch.ids.push_back(static_cast<int32_t>(first) + i);
      batch.positions.push_back(i);
    }
    batch.logit_rows.push_back(static_cast<int32_t>(first) + 2);
  }
  const auto run = [&](Communicator* comm) {
    const int rank = comm->Rank();
    auto loaded = LoadModel(checkpoint.dir(), *MakeCpuOps({.threads = 1}), MakeCpuDevice(),
                            SmallPool(), kRanks);
    if (!loaded.ok()) return loaded.status();
    auto comms = GroupComms::Make(ranks.fabric(rank), GroupId{9, 1}, addresses, rank, modes);
    if (!comms.ok()) return comms.status();
    RunState& state = (*loaded)->state;
    const std::vector<Matrix*> all = {&state.residual,    &state.normed,  &state.query,
                                      &state.key,         &state.value,   &state.attention,
                                      &state.projected,   &state.gate_up, &state.ffn,
                                      &state.last_normed, &state.logits};
    std::vector<const void*> places;
    for (const Matrix* m : all) places.push_back(m->data);
    for (const GroupMode mode : modes) {
      const auto layout = MakeShardLayout(ShapeOf((*loaded)->config), mode, rank);
      if (!layout.ok()) return layout.status();
      SlicedWeights slices((*loaded)->weights, *layout, (*loaded)->config.head_dim);
      GroupForward forward(loaded->get(), &slices, comms->Part(mode, Later()), *layout);
      absl::Status ran = forward.RunLayers(batch, nullptr);
      if (ran.ok()) ran = forward.Logits(0, 2).status();
      if (!ran.ok()) return ran;
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i]->data != places[i]) {
          return absl::InternalError("buffer " + std::to_string(i) + " changed its place");
        }
      }
    }
    return absl::OkStatus();
  };
  for (const absl::Status& status : TestingRanks::Run(ranks.GroupOfAll(), run)) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A whole prompt, a sliced one, and two that go token by token, in the same steps.
std::vector<double> Scores(Engine& engine) {
  std::vector<NllRun> runs = {{.ids = Text(131, 1)},
                              {.ids = Text(64, 2), .slice_tokens = 11},
                              {.ids = Text(6, 3), .slice_tokens = 1},
                              {.ids = Text(7, 4), .slice_tokens = 1, .first_step = 2}};
  std::vector<NllRun*> together;
  for (NllRun& run : runs) together.push_back(&run);
  ScoreTogether(engine, together);
  std::vector<double> scores;
  for (const NllRun& run : runs) scores.push_back(run.nll);
  return scores;
}

void ExpectScores(const std::vector<double>& actual, const std::vector<double>& expected,
                  double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * expected[i]) << "sequence " << i;
  }
}

struct Family {
  const char* name;
  const char* patch;
  DType dtype = DType::kF32;
  bool cpu_ops = true;
};

const Family kFamilies[] = {
    {"Grouped", "{}"},
    {"GroupedReference", "{}", DType::kF32, false},
    {"TwoKvHeads", R"({"num_key_value_heads": 2})"},
    {"Multiquery", R"({"num_key_value_heads": 1})"},
    {"FullHeads", R"({"num_key_value_heads": 8})"},
    {"Biased", R"({"attention_bias": true, "mlp_bias": true, "num_key_value_heads": 2})"},
    {"Qwen2Tied", R"({"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true})"},
    {"Qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 10,
        "num_key_value_heads": 2})"},
    {"GroupedBF16", "{}", DType::kBF16},
    {"BiasedF16", R"({"attention_bias": true, "mlp_bias": true})", DType::kF16},
};

class GroupFamiliesTest : public ::testing::TestWithParam<Family> {};

TEST_P(GroupFamiliesTest, SaysWhatOneRankSays) {
  const Family& family = GetParam();
  const Checkpoint checkpoint(family.patch, family.dtype);
  const std::vector<double> expected = Scores(*checkpoint.Alone(family.cpu_ops));
  const double tolerance = family.dtype == DType::kBF16  ? 1e-3
                           : family.dtype == DType::kF16 ? 1e-4
                                                         : 1e-5;
  const std::vector<std::vector<GroupMode>> choices = {{{1, 2}}, {{2, 1}}, {{2, 2}},  {{1, 8}},
                                                       {{8, 1}}, {{2, 4}}, ModesOf(8)};
  for (const std::vector<GroupMode>& modes : choices) {
    SCOPED_TRACE(testing::Message()
                 << "sp " << modes[0].sp << ", tp " << modes[0].tp << " of " << modes.size());
    const auto group = checkpoint.Group(modes, family.cpu_ops);
    ASSERT_NE(group, nullptr);
    ExpectScores(Scores(*group), expected, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupFamiliesTest, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

// Odd groups, and one whose TP does not divide the KV heads, nor they it.
TEST(GroupEngineTest, GroupsOfThreeSixAndTwelve) {
  const Checkpoint checkpoint(R"({"num_attention_heads": 12, "num_key_value_heads": 6})");
  const std::vector<double> expected = Scores(*checkpoint.Alone());
  for (const int ranks : {3, 6, 12}) {
    for (const GroupMode mode : ModesOf(ranks)) {
      SCOPED_TRACE(testing::Message() << "sp " << mode.sp << ", tp " << mode.tp);
      const auto group = checkpoint.Group({mode});
      ASSERT_NE(group, nullptr);
      ExpectScores(Scores(*group), expected, 1e-5);
    }
  }
}

// One sequence of `ids` in slices, with known blocks; afterwards its KV can be looked at.
void RunSlices(Engine& engine, const std::vector<int32_t>& ids, std::span<const int32_t> table) {
  const size_t sizes[] = {1, 2, 1, 17, 1, 1, 30, 3, 1, 1, 1, 9};
  size_t done = 0;
  for (size_t step = 0; done < ids.size(); ++step) {
    SequenceStep sequence;
    const size_t count = std::min(sizes[step % std::size(sizes)], ids.size() - done);
    sequence.tokens = std::span(ids).subspan(done, count);
    sequence.position = static_cast<int64_t>(done);
    sequence.block_table = table;
    std::vector<SequenceResult> results;
    const absl::Status status = engine.Step({&sequence, 1}, nullptr, &results);
    ASSERT_TRUE(status.ok()) << status;
    done += count;
  }
}

std::vector<int32_t> ScatteredTable() {
  std::vector<int32_t> table;
  for (int i = 0; i < 40; ++i) table.push_back(i * 37 % 128);
  return table;
}

// Whatever mode wrote it, the KV of a head is at the same ranks, in the same places, with the same
// values: what one rank writes alone, laid out for the group.
TEST(GroupEngineTest, AllModesWriteTheSameKv) {
  for (const char* patch :
       {"{}", R"({"num_key_value_heads": 2})", R"({"num_key_value_heads": 8})"}) {
    const Checkpoint checkpoint(patch);
    const std::vector<int32_t> ids = Text(149, 7), table = ScatteredTable();
    const auto alone = checkpoint.Alone();
    RunSlices(*alone, ids, table);
    const KvSpec& kv = alone->Spec().kv;
    for (const int ranks : {2, 4, 8}) {
      std::vector<std::vector<GroupMode>> choices = {ModesOf(ranks)};
      for (const GroupMode mode : ModesOf(ranks)) choices.push_back({mode});
      for (const std::vector<GroupMode>& modes : choices) {
        SCOPED_TRACE(testing::Message() << patch << ": sp " << modes[0].sp << ", tp " << modes[0].tp
                                        << " of " << modes.size() << " modes");
        const auto group = checkpoint.Group(modes);
        ASSERT_NE(group, nullptr);
        RunSlices(*group, ids, table);
        for (int layer = 0; layer < kv.num_layers; ++layer) {
          for (int head = 0; head < kv.kv_heads; ++head) {
            for (const bool values : {false, true}) {
              const std::vector<float> actual =
                  group->KvOf(table, static_cast<int64_t>(ids.size()), layer, head, values);
              const std::vector<float> expected = KvOfHead(
                  *alone, table, {}, static_cast<int64_t>(ids.size()), layer, head, values);
              ASSERT_EQ(actual.size(), expected.size());
              for (size_t i = 0; i < actual.size(); ++i) {
                ASSERT_NEAR(actual[i], expected[i], 2e-5) << layer << " " << head << " " << i;
              }
            }
          }
        }
      }
    }
  }
}

// Replicas of a KV head are the same bits.
TEST(GroupEngineTest, ReplicasHoldTheSameBits) {
  const Checkpoint checkpoint(R"({"num_key_value_heads": 2})");
  const std::vector<int32_t> ids = Text(60, 8), table = ScatteredTable();
  for (const GroupMode mode : ModesOf(8)) {
    const auto group = checkpoint.Group({mode});
    ASSERT_NE(group, nullptr);
    RunSlices(*group, ids, table);
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(group->KvAt(rank, table, 60, 1, 0, true),
                group->KvAt(rank / 4 * 4, table, 60, 1, 0, true))
          << "sp " << mode.sp << ", rank " << rank;
    }
  }
}

// A group holds longer sequences than a rank: blocks have more tokens.
TEST(GroupEngineTest, LongerThanOnePool) {
  const Checkpoint checkpoint("{}");
  ModelEngineOptions small = SmallPool();
  small.num_blocks = 10;
  auto group = GroupOfEngines::Make(checkpoint.dir(), {4, ModesOf(4), true, small});
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->engine(0).Spec().max_positions, 40);
  EXPECT_EQ(group->Spec().max_positions, 160);
  const std::vector<int32_t> ids = Text(160, 9);
  std::vector<int32_t> table = {3, 1, 4, 0, 5, 9, 2, 6, 8, 7};
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  step.want_logits = true;
  std::vector<SequenceResult> results;
  ASSERT_TRUE(group->Step({&step, 1}, nullptr, &results).ok());
  const std::vector<float> expected = LogitsAfter(*checkpoint.Alone(), ids);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(results[0].logits[i], expected[i], 1e-4);
  }
}

// All of them are there before a first step, whichever rank it will be in whichever mode.
TEST(GroupEngineTest, StepsMakeNoViewsOfTheWeights) {
  const Checkpoint checkpoint("{}");
  const std::vector<int32_t> ids = Text(60, 8), table = ScatteredTable();
  for (const int ranks : {2, 4, 8}) {
    const auto group = checkpoint.Group(ModesOf(ranks));
    ASSERT_NE(group, nullptr);
    const size_t made = group->engine(0).views_made();
    EXPECT_GT(made, static_cast<size_t>(ranks));
    RunSlices(*group, ids, table);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(group->engine(rank).views_made(), made) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(GroupEngineTest, TheHeadsSayHowLargeAGroupMayBe) {
  const auto most = [](const char* patch) {
    const Checkpoint checkpoint(patch);
    auto engine = GroupEngine::Make(checkpoint.dir(), *MakeCpuOps({.threads = 1}), MakeCpuDevice(),
                                    SmallPool(), 8);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return (*engine)->GroupRanksMax();
  };
  EXPECT_EQ(most("{}"), 8);
  EXPECT_EQ(most(R"({"num_attention_heads": 14, "num_key_value_heads": 2})"), 2);
  EXPECT_EQ(most(R"({"num_attention_heads": 7, "num_key_value_heads": 1})"), 1);
}

// Samples are the same as alone, and on all ranks (GroupOfEngines compares them).
TEST(GroupEngineTest, SamplesAsOneRank) {
  const Checkpoint checkpoint("{}");
  SamplingParams params;
  params.temperature = 0.8f;
  params.seed = 5;
  params.top_logprobs = 3;
  const std::vector<int32_t> ids = Text(33, 10), table = ScatteredTable();
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  step.sample = true;
  step.sampling = &params;
  step.prompt = ids;
  std::vector<SequenceResult> expected, actual;
  ASSERT_TRUE(checkpoint.Alone()->Step({&step, 1}, nullptr, &expected).ok());
  for (const GroupMode mode : ModesOf(4)) {
    const auto group = checkpoint.Group({mode});
    ASSERT_NE(group, nullptr);
    std::vector<int> layers;
    StepProgress progress([&](int layer) { layers.push_back(layer); });
    ASSERT_TRUE(group->Step({&step, 1}, &progress, &actual).ok());
    EXPECT_EQ(actual[0].sampled.token, expected[0].sampled.token);
    EXPECT_NEAR(actual[0].sampled.logprob, expected[0].sampled.logprob, 1e-5);
    EXPECT_EQ(layers, (std::vector<int>{0, 1}));
  }
}

// A device's sampler, whose device is the host: the host's choices.
class CountingSampler final : public TokenSampler {
 public:
  CountingSampler(int vocab_size, std::atomic<int>* asked) : sampler_(vocab_size), asked_(asked) {}

  int RequestsMax() const override { return 2; }
  bool Takes(const SamplingParams& params) const override { return params.top_k == 0; }
  absl::Status Sample(ConstMatrix logits, std::span<const SampleRequest> requests,
                      std::span<absl::StatusOr<SampledToken>> answers) override {
    *asked_ += static_cast<int>(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const SampleRequest& request = requests[i];
      const std::span<const float> row(
          static_cast<const float*>(logits.data) + request.row * logits.stride,
          static_cast<size_t>(logits.cols));
      answers[i] = sampler_.Sample(row, *request.params, request.token_index, request.prompt,
                                   request.output);
    }
    return absl::OkStatus();
  }

 private:
  Sampler sampler_;
  std::atomic<int>* const asked_;
};

// Each rank of a group samples on its device what that can, and the same as alone.
TEST(GroupEngineTest, SamplesOnTheDevice) {
  const Checkpoint checkpoint("{}");
  std::atomic<int> asked = 0;
  ModelEngineOptions options = SmallPool();
  options.make_token_sampler =
      [&](int vocab_size) -> absl::StatusOr<std::unique_ptr<TokenSampler>> {
    return std::make_unique<CountingSampler>(vocab_size, &asked);
  };
  const auto group = GroupOfEngines::Make(checkpoint.dir(), {4, ModesOf(4), true, options});
  ASSERT_NE(group, nullptr);
  const auto alone = checkpoint.Alone();
  const std::vector<int32_t> ids = Text(20, 11);
  for (const int top_k : {0, 5}) {  // a top_k it does not take
    SamplingParams params;
    params.temperature = 0.9f;
    params.seed = 6;
    params.top_k = top_k;
    std::vector<SequenceStep> steps(3);  // more than a call's requests
    std::vector<std::vector<int32_t>> tables;
    for (size_t s = 0; s < steps.size(); ++s) {
      tables.push_back({static_cast<int32_t>(6 * s), static_cast<int32_t>(6 * s + 1),
                        static_cast<int32_t>(6 * s + 2), static_cast<int32_t>(6 * s + 3),
                        static_cast<int32_t>(6 * s + 4)});
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      steps[s].tokens = std::span(ids).first(18 + s);
      steps[s].block_table = tables[s];
      steps[s].sample = true;
      steps[s].sampling = &params;
      steps[s].prompt = steps[s].tokens;
    }
    std::vector<SequenceResult> expected, actual;
    ASSERT_TRUE(alone->Step(steps, nullptr, &expected).ok());
    asked = 0;
    ASSERT_TRUE(group->Step(steps, nullptr, &actual).ok());
    EXPECT_EQ(asked, top_k == 0 ? 4 * 3 : 0);
    for (size_t s = 0; s < steps.size(); ++s) {
      ASSERT_TRUE(actual[s].status.ok()) << actual[s].status;
      EXPECT_EQ(actual[s].sampled.token, expected[s].sampled.token);
    }
  }
}

// Each rank's pool takes what its weights and buffers, those of group steps included, leave of its
// budget, so equal budgets are equal pools.
TEST(GroupEngineTest, KvFillsWhatTheBuffersLeave) {
  const Checkpoint checkpoint("{}");
  constexpr size_t kBudget = 4 << 20, kLayers = 2;
  ModelEngineOptions options = SmallPool();
  options.num_blocks = 0;
  options.kv_fills_device = true;
  options.ring_tp_max = 1;
  options.ring_segment_bytes = 3000;  // else it grows with so small a pool
  LocalHub hub;
  std::vector<std::shared_ptr<MemoryBudget>> budgets;
  TestingGroupOptions of_group;
  of_group.ranks = 4;
  of_group.modes = ModesOf(4);
  of_group.engine = options;
  of_group.make_rank = [&](int) {
    budgets.push_back(std::make_shared<MemoryBudget>(kBudget));
    return TestingRankParts{*MakeCpuOps({.threads = 1}),
                            MakeBudgetedDevice(MakeCpuDevice(), budgets.back()), hub.MakeFabric()};
  };
  const auto group = GroupOfEngines::Make(checkpoint.dir(), of_group);
  ASSERT_NE(group, nullptr);
  const KvSpec kv = group->Spec().kv;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(group->engine(rank).Spec().kv.num_blocks, kv.num_blocks) << rank;
    EXPECT_LT(
        budgets[static_cast<size_t>(rank)]->Use().free_bytes,
        kLayers * (static_cast<size_t>(kv.BlockBytes()) + kDevicePageBytes) + kDevicePageBytes);
  }
  const auto budget = std::make_shared<MemoryBudget>(kBudget);
  auto alone = MakeModelEngine(checkpoint.dir(), *MakeCpuOps({.threads = 1}),
                               MakeBudgetedDevice(MakeCpuDevice(), budget), options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_GT((*alone)->Spec().kv.num_blocks, kv.num_blocks) << "which has no buffers of groups";
  ExpectScores(Scores(*group), Scores(**alone), 1e-5);
}

// Alone and together alternate on one engine, each on its own sequences.
TEST(GroupEngineTest, AloneBetweenStepsTogether) {
  const Checkpoint checkpoint("{}");
  const auto group = checkpoint.Group({{2, 1}});
  ASSERT_NE(group, nullptr);
  const std::vector<int32_t> together = Text(40, 11), alone = Text(24, 12);
  const std::vector<int32_t> table = ScatteredTable();
  RunSlices(*group, together, std::span(table).first(20));
  GroupEngine& engine = group->engine(1);
  std::vector<int32_t> rest;
  for (int32_t block = 0; block < 128; ++block) {
    bool used = false;
    for (int i = 0; i < 20; ++i) used = used || (table[i] + 3) % 128 == block;
    if (!used) rest.push_back(block);
  }
  RunSlices(engine, alone, rest);
  const auto expected = checkpoint.Alone();
  RunSlices(*expected, together, table);
  const std::vector<float> actual = group->KvOf(table, 40, 1, 2, false);
  const std::vector<float> wanted = KvOfHead(*expected, table, {}, 40, 1, 2, false);
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(actual[i], wanted[i], 2e-5);
  RunSlices(*expected, alone, rest);
  EXPECT_EQ(KvOfHead(engine, rest, {}, 24, 1, 2, false),
            KvOfHead(*expected, rest, {}, 24, 1, 2, false));
}

// A rank that does not come, or gives up, fails the step at all; nobody waits for long, and the
// same step on new communicators is as if nothing had been.
TEST(GroupEngineTest, AFailedStepLeavesTheEngineUsable) {
  const Checkpoint checkpoint("{}");
  const std::vector<int32_t> ids = Text(50, 13), table = ScatteredTable();
  const std::vector<float> expected = LogitsAfter(*checkpoint.Alone(), ids);
  for (const GroupMode mode : ModesOf(4)) {
    const auto group = checkpoint.Group({mode});
    ASSERT_NE(group, nullptr);
    RunSlices(*group, {ids.begin(), ids.begin() + 40}, table);
    SequenceStep step;
    step.tokens = std::span(ids).subspan(40);
    step.position = 40;
    step.block_table = table;
    step.want_logits = true;
    std::vector<SequenceResult> results;
    for (const bool abort : {true, false}) {
      group->BreakNextStep(2, abort);
      EXPECT_FALSE(group->Step({&step, 1}, nullptr, &results).ok());
      for (const absl::Status& status : group->statuses()) {
        EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
      }
      group->Regroup();
    }
    ASSERT_TRUE(group->Step({&step, 1}, nullptr, &results).ok());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(results[0].logits[i], expected[i], 1e-4);
    }
  }
}

// In every mode; under SP a row's sums depend on how the batch is dealt.
TEST(GroupEngineTest, FailuresStayAlone) {
  const Checkpoint checkpoint("{}");
  for (const GroupMode mode : ModesOf(4)) {
    SCOPED_TRACE("sp " + std::to_string(mode.sp));
    const auto group = checkpoint.Group({mode});
    ASSERT_NE(group, nullptr);
    const auto spoil = [&](int32_t block) {
      for (int rank = 0; rank < 4; ++rank) {
        const GroupEngine& engine = group->engine(rank);
        const int64_t bytes = engine.Spec().kv.BlockBytes();
        const int64_t own = (block + int64_t{3} * rank) % engine.Spec().kv.num_blocks;
        for (const KvRegion& region : engine.KvRegions()) {
          std::memset(static_cast<std::byte*>(region.base) + own * bytes, 0xff,
                      static_cast<size_t>(bytes));
        }
      }
    };
    ExpectFailuresStayAlone(*group, {.spoil_block = spoil, .exact = mode.sp == 1});
  }
}

// At the step's first exchange; it has none for that alone.
TEST(GroupEngineTest, RanksThatWereGivenOtherStepsFindOut) {
  const Checkpoint checkpoint("{}");
  const auto group = checkpoint.Group({{1, 2}});
  ASSERT_NE(group, nullptr);
  TestingRanks ranks([hub = std::make_shared<LocalHub>()] { return hub->MakeFabric(); }, 2);
  const std::vector<int32_t> table = ScatteredTable();
  const std::vector<int32_t> ids[] = {Text(5, 1), Text(5, 2)};
  for (const bool same : {false, true}) {
    const auto comms = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(comms, [&](Communicator* comm) {
      SequenceStep step;
      step.tokens = ids[same ? 0 : comm->Rank()];
      step.block_table = table;
      step.layout = KvLayout{2};
      std::vector<SequenceResult> results;
      const GroupPart part{{1, 2}, comm, nullptr, comm, Later()};
      return group->engine(comm->Rank()).StepTogether(part, {&step, 1}, nullptr, &results);
    });
    int found_out = 0;
    for (const absl::Status& end : ends) {
      found_out += absl::IsFailedPrecondition(end) ? 1 : 0;
      EXPECT_EQ(end.ok(), same) << end;
      // The other may come when the group is broken.
      EXPECT_TRUE(same || absl::IsFailedPrecondition(end) || absl::IsUnavailable(end)) << end;
      EXPECT_THAT(std::string(end.message()), HasSubstr(same ? "" : "rank 1"));
    }
    EXPECT_EQ(found_out > 0, !same);
  }
}

// Its blocks hold another number of tokens.
TEST(GroupEngineTest, ASequenceOfAnotherLayoutIsRefusedByName) {
  const Checkpoint checkpoint("{}");
  const auto group = checkpoint.Group({{1, 2}});
  ASSERT_NE(group, nullptr);
  TestingRanks ranks([hub = std::make_shared<LocalHub>()] { return hub->MakeFabric(); }, 2);
  const auto comms = ranks.GroupOfAll();
  const std::vector<int32_t> ids = Text(5, 1), table = ScatteredTable();
  const auto ends = TestingRanks::Run(comms, [&](Communicator* comm) {
    SequenceStep step;  // of one instance alone
    step.tokens = ids;
    step.block_table = table;
    std::vector<SequenceResult> results;
    const GroupPart part{{1, 2}, comm, nullptr, comm, Later()};
    const absl::Status status =
        group->engine(comm->Rank()).StepTogether(part, {&step, 1}, nullptr, &results);
    EXPECT_TRUE(status.ok()) << status;
    return results.at(0).status;
  });
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsInvalidArgument(end));
    EXPECT_THAT(std::string(end.message()), HasSubstr("layout.tp = 1"));
  }
}

TEST(GroupEngineTest, RefusesByFieldAndValue) {
  const Checkpoint checkpoint(R"({"num_attention_heads": 12, "num_key_value_heads": 6})");
  const auto group = checkpoint.Group({{2, 2}});
  ASSERT_NE(group, nullptr);
  const std::vector<int32_t> ids = Text(5, 1), table = ScatteredTable();
  SequenceStep step;
  step.tokens = ids;
  step.block_table = table;
  std::vector<SequenceResult> results;
  const absl::Status heads = group->Step({&step, 1}, nullptr, &results);  // six heads on four
  EXPECT_EQ(heads.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(heads.message()), HasSubstr("num_kv_heads = 6"));

  const auto pair = checkpoint.Group({{1, 2}});
  ASSERT_NE(pair, nullptr);
  TestingRanks ranks([hub = std::make_shared<LocalHub>()] { return hub->MakeFabric(); }, 2);
  const auto comms = ranks.GroupOfAll();
  GroupPart part{{1, 2}, comms[0].get(), nullptr, comms[0].get(), Later()};
  const auto message = [&](const GroupPart& p) {
    const absl::Status status = pair->engine(0).StepTogether(p, {&step, 1}, nullptr, &results);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  part.tp = nullptr;
  EXPECT_THAT(message(part), HasSubstr("tp: missing"));
  part.mode = {1, 4};
  EXPECT_THAT(message(part), HasSubstr("num_kv_heads = 6"));
  part.mode = {1, 3};
  EXPECT_THAT(message(part), HasSubstr("all.size = 2"));
  part.all = nullptr;
  EXPECT_THAT(message(part), HasSubstr("all: missing"));
  const auto alone = GroupEngine::Make(checkpoint.dir(), std::make_unique<ReferenceOps>(),
                                       MakeCpuDevice(), SmallPool(), 1);
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("ranks_max = 1"));
}

}  // namespace
}  // namespace skein::engine
