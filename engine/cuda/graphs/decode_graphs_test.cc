// Decode steps as graphs against the same steps without: the same logits, bit by bit, while
// sequences come, grow into new blocks and leave; graphs that are evicted and made again; a device
// that refuses.
#include "engine/cuda/graphs/decode_graphs.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/simt/launch_failures.h"
#include "engine/cuda/testing/twin_backend.h"
#include "engine/model/forward/forward.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/sampling/philox.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

constexpr int kBlockTokens = 4;
constexpr int kVocabulary = 97;

// Tokens of the prompt, tokens wanted, the step it comes at.
struct Request {
  int prompt;
  int wanted;
  int first_step;
  auto operator<=>(const Request&) const = default;
};

std::vector<int32_t> Prompt(size_t index, int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(UniformSample(index, i) * kVocabulary);
  }
  return ids;
}

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  size_t done = 0;
  int left = 0;
};

void GrowBlocks(Sequence* s, int32_t* next_block) {
  while (s->blocks.size() * kBlockTokens < s->tokens.size()) s->blocks.push_back((*next_block)++);
}

// Greedy tokens of the requests, as they come and go; the logits of all steps, end to end.
std::vector<float> LogitsOf(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Sequence> all;
  for (size_t i = 0; i < requests.size(); ++i) {
    all.push_back({Prompt(i, requests[i].prompt), {}, 0, requests[i].wanted});
  }
  std::vector<float> logits;
  int32_t next_block = 0;
  for (int step = 0;; ++step) {
    std::vector<Sequence*> active;
    std::vector<SequenceStep> steps;
    bool waits = false;
    for (size_t i = 0; i < all.size(); ++i) {
      Sequence& s = all[i];
      if (s.left > 0 && step < requests[i].first_step) waits = true;
      if (s.left == 0 || step < requests[i].first_step) continue;
      GrowBlocks(&s, &next_block);
      SequenceStep next;
      next.tokens = std::span(s.tokens).subspan(s.done);
      next.position = static_cast<int64_t>(s.done);
      next.block_table = s.blocks;
      next.want_logits = true;
      active.push_back(&s);
      steps.push_back(next);
    }
    if (active.empty() && !waits) return logits;
    if (active.empty()) continue;
    std::vector<SequenceResult> results;
    const absl::Status ran = engine.Step(steps, nullptr, &results);
    EXPECT_TRUE(ran.ok()) << ran;
    if (!ran.ok()) return logits;
    for (size_t i = 0; i < active.size(); ++i) {
      const std::vector<float>& row = results[i].logits;
      logits.insert(logits.end(), row.begin(), row.end());
      active[i]->done = active[i]->tokens.size();
      active[i]->tokens.push_back(
          static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      --active[i]->left;
    }
  }
}

// Batches of two to five, prompts of several tokens among decoding sequences.
const std::vector<Request> kMixed = {{5, 11, 0}, {9, 7, 0}, {1, 7, 3}, {3, 2, 4}, {2, 4, 4}};
// Two, then three, then two again; a prompt of one token is a decode step, too.
const std::vector<Request> kAlternating = {{1, 10, 0}, {1, 10, 0}, {1, 4, 4}};

class DecodeGraphsTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", kVocabulary},
                                   {"max_position_embeddings", 64},
                                   {"rms_norm_eps", 1e-5},
                                   {"hidden_act", "silu"}};
    dir_ = testing::TempDir() + "/decode_graphs_" + std::string(NameOf(GetParam()));
    ASSERT_TRUE(tools::WriteRandomCheckpoint(dir_, config, {.dtype = GetParam(), .seed = 5}).ok());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Engine> MakeEngine(const DecodeGraphsOptions* graphs, WrapRecorder wrap = {}) {
    TestingBackend backend = MakeTestingBackend();
    ModelEngineOptions options;
    options.num_blocks = 128;
    options.block_tokens = kBlockTokens;
    options.max_batch_tokens = 128;
    options.make_token_sampler = backend.make_token_sampler;
    options.warn = [this](const std::string& what) { warnings_.push_back(what); };
    if (graphs != nullptr) {
      options.make_decode_runner = [this, make = backend.decode_graphs(*graphs, std::move(wrap))](
                                       const DecodeShape& shape, auto warn) {
        auto made = make(shape, std::move(warn));
        if (made.ok()) graphs_ = static_cast<DecodeGraphs*>(made->get());
        return made;
      };
    }
    auto engine = MakeModelEngine(dir_, std::move(backend.ops), std::move(backend.device), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  void ExpectSame(const DecodeGraphsOptions& options, const std::vector<Request>& requests,
                  WrapRecorder wrap = {}) {
    static std::map<std::pair<DType, std::vector<Request>>, std::vector<float>> known;
    std::vector<float>& expected = known[{GetParam(), requests}];
    if (expected.empty()) expected = LogitsOf(*MakeEngine(nullptr), requests);
    with_graphs_ = MakeEngine(&options, std::move(wrap));
    const std::vector<float> actual = LogitsOf(*with_graphs_, requests);
    ASSERT_EQ(actual.size(), expected.size());
    const auto differs = std::mismatch(actual.begin(), actual.end(), expected.begin());
    EXPECT_EQ(differs.first - actual.begin(), static_cast<ptrdiff_t>(actual.size()));
  }

  std::string dir_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Engine> with_graphs_;
  DecodeGraphs* graphs_ = nullptr;  // of the engine made last
};

TEST_P(DecodeGraphsTest, SameLogitsAsSequencesComeGrowAndLeave) {
  ExpectSame({}, kMixed);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_GE(graphs_->counts().recorded, 2);
  EXPECT_GT(graphs_->counts().launched, graphs_->counts().recorded);
}

TEST_P(DecodeGraphsTest, GraphsThatWereEvictedAreMadeAgain) {
  ExpectSame({.graphs_max = 1}, kAlternating);
  EXPECT_EQ(graphs_->counts().recorded, 3);  // of 2, 4 and 2 rows
  EXPECT_EQ(graphs_->graphs().evictions(), 2);
  EXPECT_EQ(graphs_->graphs().graphs(), 1u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_P(DecodeGraphsTest, LargerBatchesRunWithout) {
  ExpectSame({.rows_max = 2}, kAlternating);
  EXPECT_EQ(graphs_->counts().recorded, 1);
  EXPECT_EQ(graphs_->counts().launched, 5);
}

// Through the sampler of the device, and a prefill among the steps.
TEST_P(DecodeGraphsTest, SameSampledTokens) {
  const auto tokens = [](Engine& engine) {
    GreedyRun a{.prompt = Prompt(1, 6), .tokens_wanted = 7},
        b{.prompt = Prompt(2, 17), .tokens_wanted = 3, .slice_tokens = 9, .first_step = 3};
    RunTogether(engine, {&a, &b});
    a.output.insert(a.output.end(), b.output.begin(), b.output.end());
    return a.output;
  };
  const std::vector<int32_t> expected = tokens(*MakeEngine(nullptr));
  const DecodeGraphsOptions options;
  with_graphs_ = MakeEngine(&options);
  EXPECT_EQ(tokens(*with_graphs_), expected);
  EXPECT_GT(graphs_->counts().launched, 0);
}

// A device that refuses at its second graph.
class Refusing final : public GraphRecorder {
 public:
  enum class At { kBegin, kWithin, kEnd, kLaunch };
  class Graph final : public RecordedGraph {
   public:
    absl::Status Launch() override { return absl::InternalError("no launch today"); }
  };

  Refusing(std::unique_ptr<GraphRecorder> inner, At at) : inner_(std::move(inner)), at_(at) {}
  absl::StatusOr<CudaStream> Begin() override {
    refuses_ = ++begun_ == 2;
    if (refuses_ && at_ == At::kBegin) return absl::InternalError("no capture today");
    return inner_->Begin();
  }
  absl::StatusOr<std::unique_ptr<RecordedGraph>> End() override {
    if (refuses_ && at_ == At::kWithin) LaunchFailed("no kernel today");
    auto graph = inner_->End();
    if (refuses_ && at_ == At::kEnd) return absl::InternalError("no graph today");
    if (refuses_ && at_ == At::kLaunch) return std::make_unique<Graph>();
    return graph;
  }

 private:
  const std::unique_ptr<GraphRecorder> inner_;
  const At at_;
  int begun_ = 0;
  bool refuses_ = false;
};

TEST_P(DecodeGraphsTest, ADeviceThatRefusesIsAskedNoMore) {
  const std::pair<Refusing::At, std::string> cases[] = {{Refusing::At::kBegin, "no capture today"},
                                                        {Refusing::At::kWithin, "no kernel today"},
                                                        {Refusing::At::kEnd, "no graph today"},
                                                        {Refusing::At::kLaunch, "no launch today"}};
  for (const auto& [at, text] : cases) {
    warnings_.clear();
    ExpectSame({}, kAlternating, [at = at](std::unique_ptr<GraphRecorder> inner) {
      return std::make_unique<Refusing>(std::move(inner), at);
    });
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(warnings_[0], "decode steps run without graphs from here on: " + text);
    EXPECT_EQ(graphs_->counts().launched, 3);
    const std::vector<int32_t> table = {0};
    const SequenceSpan span = {0, 1, 0, table, {}};
    EXPECT_EQ(graphs_->RowsFor({&span, 1}), 0);
  }
}

TEST_P(DecodeGraphsTest, TakesOnlyDecodeSteps) {
  const DecodeGraphsOptions options;
  with_graphs_ = MakeEngine(&options);
  const std::vector<int32_t> table = {0, 1};
  const SequenceSpan one = {0, 1, 3, table, {}}, next = {1, 1, 0, table, {}};
  const auto rows = [&](std::vector<SequenceSpan> spans) { return graphs_->RowsFor(spans); };
  EXPECT_EQ(rows({one}), 1);
  EXPECT_EQ(rows({one, next}), 2);
  EXPECT_EQ(rows({}), 0);
  EXPECT_EQ(rows({{0, 2, 3, table, {}}}), 0);           // two tokens
  EXPECT_EQ(rows({{0, 1, 3, table, KvLayout{2}}}), 0);  // another layout
  EXPECT_EQ(rows({{0, 1, 3, table, {}, 2}}), 0);        // keys without a mask
  std::vector<SequenceSpan> many(129, one);
  for (size_t i = 0; i < many.size(); ++i) many[i].token_begin = static_cast<int64_t>(i);
  EXPECT_EQ(rows(many), 0);  // more than the engine's max_batch_tokens
  many.pop_back();
  EXPECT_EQ(rows(many), 128);
}

INSTANTIATE_TEST_SUITE_P(All, DecodeGraphsTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// In f32 of more rows than a product takes at once, and than logits have room for.
class ManyRows : public DecodeGraphsTest {};

TEST_P(ManyRows, SameLogits) {
  std::vector<Request> requests(66, {1, 3, 0});
  requests[7].wanted = 2;
  ExpectSame({}, requests);
  EXPECT_GT(graphs_->counts().launched, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ManyRows, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(PaddedRows, GrowsInSteps) {
  const std::pair<int64_t, int64_t> expected[] = {{1, 1},   {2, 2},   {3, 4},    {4, 4},
                                                  {5, 8},   {8, 8},   {9, 16},   {33, 40},
                                                  {64, 64}, {65, 96}, {97, 128}, {256, 256}};
  for (const auto& [rows, padded] : expected) EXPECT_EQ(PaddedRows(rows), padded) << rows;
}

// The cut of a padded batch depends on its rows only.
TEST(RunsOf, PaddingFillsTheLastRun) {
  for (const auto& [rows, skinny_gemm] : {std::pair<int64_t, int64_t>{1, 64},
                                          {8, 64},
                                          {64, 64},
                                          {96, 64},
                                          {256, 64},
                                          {64, 256},
                                          {256, 256},
                                          {320, 256}}) {
    for (int64_t count = std::max<int64_t>(1, rows - 40); count <= rows; ++count) {
      std::vector<SequenceSpan> spans(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        spans[static_cast<size_t>(i)].token_begin = i;
        spans[static_cast<size_t>(i)].token_count = 1;
      }
      int64_t begin = 0;
      for (const RowRun& run : RunsOf(spans, rows - count, skinny_gemm)) {
        EXPECT_EQ(run.begin, begin);
        EXPECT_EQ(run.count, std::min(skinny_gemm, rows - begin));
        begin += run.count;
      }
      EXPECT_EQ(begin, rows);
    }
  }
}

}  // namespace
}  // namespace skein::engine
