// Groups on CUDA's operators, with sampling and graphs of decode steps on the device as in a
// worker, over each way between the ranks' devices: in TP, SP and both they say what one rank says,
// and what ranks run alone before, between and after the steps of a group keeps its KV and every
// bit.
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/cuda/testing/twin_rank.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/ranks/group_of_engines.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/sampling/philox.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kVocabulary = 61;  // which no group divides
constexpr int kBlockTokens = 4;

std::vector<int32_t> Text(size_t count, uint64_t seed) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<int32_t>(UniformSample(seed, i) * kVocabulary);
  }
  return ids;
}

// A request whose tokens are sampled, in blocks of its own.
struct Request {
  Request(std::vector<int32_t> prompt_in, int32_t first_block, int32_t blocks_in)
      : prompt(prompt_in.size()), tokens(std::move(prompt_in)) {
    for (int32_t i = 0; i < blocks_in; ++i) blocks.push_back(first_block + i);
  }

  SequenceStep Next(const SamplingParams& params) const {
    const std::span<const int32_t> all = tokens;
    SequenceStep step;
    step.tokens = all.subspan(done);
    step.position = static_cast<int64_t>(done);
    step.block_table = blocks;
    step.sample = true;
    step.sampling = &params;
    step.token_index = tokens.size() - prompt;
    step.prompt = all.first(prompt);
    step.output = all.subspan(prompt);
    return step;
  }

  size_t prompt;
  std::vector<int32_t> tokens;  // prompt, then output
  std::vector<int32_t> blocks;
  size_t done = 0;              // of the tokens are in KV
  std::vector<float> logprobs;  // of the output
};

using Requests = std::vector<Request>;

// One step of all: what is left of each prompt, or a token of each.
absl::Status Step(Engine& engine, Requests& requests) {
  SamplingParams params;
  params.temperature = 0.9f;
  params.seed = 7;
  params.top_logprobs = 0;
  std::vector<SequenceStep> steps;
  steps.reserve(requests.size());
  for (const Request& request : requests) steps.push_back(request.Next(params));
  std::vector<SequenceResult> results;
  absl::Status status = engine.Step(steps, nullptr, &results);
  if (!status.ok()) return status;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!results[i].status.ok()) return results[i].status;
    requests[i].done = requests[i].tokens.size();
    requests[i].tokens.push_back(results[i].sampled.token);
    requests[i].logprobs.push_back(results[i].sampled.logprob);
  }
  return status;
}

class CudaGroup : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotOn(GetParam(), 4); !why.empty()) GTEST_SKIP() << why;
    options_.block_tokens = kBlockTokens;
    options_.num_blocks = 60;
    options_.max_batch_tokens = 64;
    options_.ring_tp_max = 1;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void WriteCheckpoint(DType dtype) {
    const nlohmann::json config = {{"architectures", {"Qwen3ForCausalLM"}},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 56},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 8},
                                   {"num_key_value_heads", 4},
                                   {"head_dim", 16},
                                   {"vocab_size", kVocabulary},
                                   {"max_position_embeddings", 128}};
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    dir_ = ::testing::TempDir() + "/cuda_group_" + name;
    ASSERT_TRUE(tools::WriteRandomCheckpoint(dir_, config, {.dtype = dtype, .seed = 4}).ok());
  }

  std::unique_ptr<GroupOfEngines> Group(std::vector<GroupMode> modes) {
    TestingGroupOptions options;
    options.ranks = modes[0].ranks();
    options.modes = std::move(modes);
    options.engine = options_;
    options.make_rank = [this](int r) {
      TestingRank rank = MakeTestingRank(GetParam(), r, &hub_);
      return TestingRankParts{std::move(rank.ops), std::move(rank.device), std::move(rank.fabric),
                              rank.make_token_sampler, rank.make_decode_runner};
    };
    return GroupOfEngines::Make(dir_, options);
  }

  std::unique_ptr<Engine> Alone() {
    TestingRank one = MakeTestingRank(GetParam(), 0, &hub_);
    ModelEngineOptions options = options_;
    options.make_token_sampler = one.make_token_sampler;
    options.make_decode_runner = one.make_decode_runner;
    auto engine = MakeModelEngine(dir_, std::move(one.ops), std::move(one.device), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? *std::move(engine) : nullptr;
  }

  std::string dir_;
  ModelEngineOptions options_;
  LocalHub hub_;
};

// A prompt whole, one in slices, and one that comes late, then tokens of all.
std::vector<std::vector<int32_t>> Answers(Engine& engine) {
  std::vector<GreedyRun> runs = {{.prompt = Text(17, 1), .tokens_wanted = 4},
                                 {.prompt = Text(10, 2), .tokens_wanted = 4, .slice_tokens = 4},
                                 {.prompt = Text(5, 3), .tokens_wanted = 3, .first_step = 2}};
  RunTogether(engine, {&runs[0], &runs[1], &runs[2]});
  return {runs[0].output, runs[1].output, runs[2].output};
}

TEST_P(CudaGroup, SaysWhatOneRankSaysInEveryMode) {
  ASSERT_NO_FATAL_FAILURE(WriteCheckpoint(DType::kF32));
  const auto alone = Alone();
  ASSERT_NE(alone, nullptr);
  const std::vector<std::vector<int32_t>> expected = Answers(*alone);
  const GroupMode modes[] = {{1, 2}, {2, 1}, {1, 4}, {4, 1}, {2, 2}};
  for (const GroupMode mode : modes) {
    SCOPED_TRACE(testing::Message() << "sp " << mode.sp << ", tp " << mode.tp);
    const auto group = Group({mode});
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(Answers(*group), expected);
  }
}

// In 16 bits products are other kernels, which read the slices where they lie among whole weights.
TEST_P(CudaGroup, SlicesOf16BitWeights) {
  ASSERT_NO_FATAL_FAILURE(WriteCheckpoint(DType::kBF16));
  const auto alone = Alone();
  ASSERT_NE(alone, nullptr);
  const std::vector<int32_t> ids = Text(24, 5);
  const double expected = MeanNll(*alone, ids, 0);
  for (const int ranks : {2, 4}) {
    const auto group = Group(ModesOf(ranks));
    ASSERT_NE(group, nullptr);
    for (const int slice : {0, 5}) {
      EXPECT_NEAR(MeanNll(*group, ids, slice), expected, 1e-3 * expected) << ranks << " " << slice;
    }
  }
}

// Each rank has requests of its own from before the bind to after the release. They take turns with
// the group's, also when a step of the group fails.
TEST_P(CudaGroup, BoundAndReleasedInFlight) {
  ASSERT_NO_FATAL_FAILURE(WriteCheckpoint(DType::kF32));
  constexpr int kBefore = 3, kBound = 6, kAfter = 2;
  const auto own_of = [](int rank) {
    const auto more = static_cast<size_t>(rank);
    return Requests{{Text(9 + more, 10 + more), 30, 6}, {Text(6, 20 + more), 36, 6}};
  };
  const Requests shared = {{Text(13, 30), 0, 6}, {Text(7, 31), 6, 6}};
  const auto alone = Alone();
  ASSERT_NE(alone, nullptr);
  Requests expected_shared = shared;
  for (int i = 0; i < kBound; ++i) ASSERT_TRUE(Step(*alone, expected_shared).ok());
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const auto group = Group(ModesOf(ranks));
    ASSERT_NE(group, nullptr);
    std::vector<Requests> own;
    own.reserve(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) own.push_back(own_of(r));
    const auto step_alone = [&] {
      for (int r = 0; r < ranks; ++r) {
        const absl::Status ran = Step(group->engine(r), own[static_cast<size_t>(r)]);
        ASSERT_TRUE(ran.ok()) << "rank " << r << ": " << ran;
      }
    };
    for (int i = 0; i < kBefore; ++i) ASSERT_NO_FATAL_FAILURE(step_alone());
    Requests bound = shared;
    for (int i = 0; i < kBound; ++i) {
      if (i == 3) {
        group->BreakNextStep(/*rank=*/1, /*abort=*/true);
        EXPECT_FALSE(Step(*group, bound).ok());
        group->Regroup();
      }
      const absl::Status ran = Step(*group, bound);
      ASSERT_TRUE(ran.ok()) << "step " << i << ": " << ran;
      if (i % 2 == 1) {
        ASSERT_NO_FATAL_FAILURE(step_alone());
      }
    }
    for (int i = 0; i < kAfter; ++i) ASSERT_NO_FATAL_FAILURE(step_alone());
    for (size_t i = 0; i < bound.size(); ++i) {
      EXPECT_EQ(bound[i].tokens, expected_shared[i].tokens) << i;
      ASSERT_EQ(bound[i].logprobs.size(), expected_shared[i].logprobs.size());
      for (size_t t = 0; t < bound[i].logprobs.size(); ++t) {
        EXPECT_NEAR(bound[i].logprobs[t], expected_shared[i].logprobs[t], 1e-4) << i << " " << t;
      }
    }
    for (int r = 0; r < ranks; ++r) {
      Requests expected = own_of(r);
      for (int i = 0; i < kBefore + kBound / 2 + kAfter; ++i) {
        ASSERT_TRUE(Step(*alone, expected).ok());
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        const Request& one = own[static_cast<size_t>(r)][i];
        EXPECT_EQ(one.tokens, expected[i].tokens) << "rank " << r << ", request " << i;
        EXPECT_EQ(one.logprobs, expected[i].logprobs) << "rank " << r << ", request " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaGroup, ::testing::ValuesIn(TestingWays()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::engine
