// What a ring step refuses, and what is left when one fails: every rank hears of it within the
// deadline, and the engines run the next step as if nothing had been.
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/ranks/ring_ranks.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kBlockTokens = 4;

// Three ranks: eight tokens of history at rank 0, one block of it moved to rank 1; tokens 8 to 33
// over the three.
struct RankInput {
  RingStep ring;
  std::vector<int32_t> tokens;
  std::vector<int32_t> table = {10, 11, 12, 13, 14, 15};
  SequenceStep sequence;
  const SamplingParams* sampling = nullptr;  // null: that of all
  std::function<void(int)> layer_queued;
  std::vector<SequenceResult> results;
  absl::Status status;
};

class RingFailure : public ::testing::Test {
 protected:
  RingFailure() : ranks_([this] { return hub_.MakeFabric(); }, kRanks) {
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"hidden_size", 16},
                                   {"intermediate_size", 24},
                                   {"num_hidden_layers", 3},
                                   {"num_attention_heads", 2},
                                   {"vocab_size", 50},
                                   {"max_position_embeddings", 64}};
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string dir = ::testing::TempDir() + "/ring_failure_" + test->name();
    EXPECT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = DType::kF32}).ok());
    ModelEngineOptions options;
    options.num_blocks = 20;
    options.block_tokens = kBlockTokens;
    options.max_batch_tokens = 32;
    for (int r = 0; r < kRanks; ++r) {
      auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
      EXPECT_TRUE(engine.ok()) << engine.status();
      engines_.push_back(*std::move(engine));
    }
    Reset();
  }

  // A fresh step on fresh groups.
  void Reset() {
    comm_ = ranks_.GroupOfAll();
    moves_ = ranks_.GroupOfAll();
    ResetInputs();
  }

  // A fresh step on the groups of the last.
  void ResetInputs() {
    inputs_.assign(kRanks, {});
    const std::vector<RankShare> shares = {{4, {{8, 4}, {32, 2}}}, {4, {{12, 8}}}, {0, {{20, 12}}}};
    for (size_t r = 0; r < kRanks; ++r) {
      RankInput& input = inputs_[r];
      input.ring.comm = comm_[r].get();
      input.ring.moves = moves_[r].get();
      input.ring.shares = shares;
      input.ring.moved_blocks_max = 1;
      input.ring.deadline = Later();
      if (shares[r].history_tokens > 0) input.ring.history_blocks = {{3}};
      for (const TokenSpan& span : shares[r].spans) {
        for (int64_t i = 0; i < span.count; ++i) {
          input.tokens.push_back(static_cast<int32_t>((span.position + i) * 7 % 50));
        }
      }
    }
    inputs_[0].ring.send = {{}, {{4}}, {}};
    inputs_[1].ring.receive = {{{3}}, {}, {}};
    for (auto& engine : engines_) {
      for (const KvRegion& region : engine->KvRegions()) {
        auto* values = static_cast<float*>(region.base);
        for (size_t i = 0; i < region.bytes / sizeof(float); ++i) {
          values[i] = 0.01f * static_cast<float>(i % 97);
        }
      }
    }
  }

  // Runs the ranks that are there; logits of the last token, at rank 0.
  std::vector<float> Run(const std::vector<size_t>& present = {0, 1, 2}) {
    std::vector<std::thread> threads;
    for (const size_t r : present) {
      RankInput& input = inputs_[r];
      input.sequence.tokens = input.tokens;
      input.sequence.block_table = input.table;
      input.sequence.ring = &input.ring;
      input.sequence.want_logits = r == 0;
      input.sequence.sampling = input.sampling != nullptr ? input.sampling : &sampling_;
      threads.emplace_back([this, r, &input] {
        StepProgress progress(input.layer_queued);
        input.status = engines_[r]->Step({&input.sequence, 1}, &progress, &input.results);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return inputs_[0].status.ok() && !inputs_[0].results.empty() ? inputs_[0].results[0].logits
                                                                 : std::vector<float>();
  }

  // The rank that saw it first says so, and the others name it.
  void ExpectEndedAtTheDeadline(const std::vector<size_t>& present) {
    bool late = false;
    for (const size_t r : present) {
      const absl::Status& status = inputs_[r].status;
      EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("deadline passed"));
      late |= absl::IsDeadlineExceeded(status);
    }
    EXPECT_TRUE(late);
  }

  void ExpectAllUnavailable(const std::vector<size_t>& present = {0, 1, 2}) {
    for (const size_t r : present) {
      EXPECT_EQ(inputs_[r].status.code(), absl::StatusCode::kUnavailable) << inputs_[r].status;
    }
  }

  // The step that was refused or broken, whole.
  void ExpectGoesOn(const std::vector<float>& expected) {
    Reset();
    ExpectRuns(expected);
  }
  void ExpectRuns(const std::vector<float>& expected) {
    const std::vector<float> again = Run();
    for (const RankInput& input : inputs_) {
      ASSERT_TRUE(input.status.ok()) << input.status;
      EXPECT_TRUE(input.results[0].status.ok()) << input.results[0].status;
    }
    ASSERT_EQ(again.size(), expected.size());
    EXPECT_EQ(std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)), 0);
  }

  // What rank 1 answers when its step is `edit`ed: it runs nothing, and the others hear of it.
  std::string Refusal(const std::function<void(RankInput&)>& edit) {
    Reset();
    int layers = 0;
    inputs_[1].layer_queued = [&](int) { ++layers; };
    edit(inputs_[1]);
    Run();
    EXPECT_EQ(layers, 0);
    ExpectAllUnavailable({0, 2});
    for (const size_t r : {0, 2}) {
      EXPECT_THAT(std::string(inputs_[r].status.message()), HasSubstr("rank 1 refused its part"));
    }
    EXPECT_TRUE(inputs_[1].status.ok()) << inputs_[1].status;
    if (!inputs_[1].status.ok()) return "";
    EXPECT_EQ(inputs_[1].results[0].status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(inputs_[1].results[0].status.message());
  }

  // All ranks fail when rank 1 was given a step that is `edit`ed.
  void ExpectFoundOut(const char* what, const std::function<void(RankInput&)>& edit) {
    SCOPED_TRACE(what);
    Reset();
    edit(inputs_[1]);
    Run();
    bool told = false;
    for (const RankInput& input : inputs_) {
      EXPECT_TRUE(absl::IsInvalidArgument(input.status) || absl::IsUnavailable(input.status))
          << input.status;
      told |= absl::StrContains(input.status.message(), "other steps or models");
    }
    EXPECT_TRUE(told);
  }

  LocalHub hub_;
  TestingRanks ranks_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Communicator>> comm_, moves_;
  std::vector<RankInput> inputs_;
  SamplingParams sampling_;
};

TEST_F(RingFailure, TheSameStepRepeatsBitByBit) {
  const std::vector<float> first = Run();
  ASSERT_EQ(first.size(), 50u);
  for (int i = 0; i < 5; ++i) ExpectGoesOn(first);
}

TEST_F(RingFailure, AbortInMidStepEndsItEverywhere) {
  const std::vector<float> expected = Run();
  for (const bool moves : {false, true}) {
    for (const int layer : {0, 1, 2}) {
      Reset();
      Communicator* group = (moves ? moves_ : comm_)[2].get();
      inputs_[2].layer_queued = [&, layer](int done) {
        if (done == layer) group->Abort(absl::CancelledError("by its request"));
      };
      Run();
      ExpectAllUnavailable();
      ExpectGoesOn(expected);
    }
  }
}

TEST_F(RingFailure, ADeadRankEndsTheStepOfTheOthers) {
  const std::vector<float> expected = Run();
  Reset();
  comm_[2].reset();
  moves_[2].reset();
  Run({0, 1});
  ExpectAllUnavailable({0, 1});
  ExpectGoesOn(expected);
}

TEST_F(RingFailure, ARankThatNeverComesIsWaitedForUntilTheDeadline) {
  const std::vector<float> expected = Run();
  Reset();
  for (RankInput& input : inputs_) {
    input.ring.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  }
  Run({0, 2});
  ExpectEndedAtTheDeadline({0, 2});
  ExpectGoesOn(expected);
}

TEST_F(RingFailure, RanksThatDisagreeAreFoundOut) {
  const std::vector<float> expected = Run();
  ExpectFoundOut("the same tokens, dealt otherwise", [](auto& i) {
    i.ring.shares[0].spans = {{8, 4}};
    i.ring.shares[2].spans = {{20, 14}};
  });
  ExpectFoundOut("histories of other blocks", [](auto& i) {
    i.ring.shares[0].history = {1};
    i.ring.shares[1].history = {0};
  });
  ExpectFoundOut("another rank's logits", [](auto& i) { i.ring.shares[2].wants_logits = false; });
  ExpectFoundOut("moves", [](auto& i) { i.ring.moved_blocks_max = 2; });
  const std::vector<int32_t> prompt = {1, 2, 3};
  ExpectFoundOut("another prompt", [&](auto& i) { i.sequence.prompt = prompt; });
  SamplingParams other;
  other.temperature = 0.5f;
  ExpectFoundOut("other sampling", [&](auto& i) { i.sampling = &other; });
  ExpectFoundOut("blocks that nobody sends", [](auto& i) { i.ring.receive = {{}, {}, {{3}}}; });
  ExpectGoesOn(expected);
}

// Every rank waits for a message that no rank will send.
TEST_F(RingFailure, RanksThatWaitForOneAnotherEndAtTheDeadline) {
  const std::vector<float> expected = Run();
  Reset();
  for (RankInput& input : inputs_) {
    input.ring.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  }
  inputs_[1].ring.moves = nullptr;
  inputs_[1].ring.receive = {};
  Run();
  ExpectEndedAtTheDeadline({0, 1, 2});
  ExpectGoesOn(expected);
}

TEST_F(RingFailure, RefusalsNameTheField) {
  const std::vector<float> expected = Run();
  EXPECT_THAT(Refusal([](auto& i) { i.tokens.pop_back(); }), HasSubstr("tokens: 7"));
  EXPECT_THAT(Refusal([](auto& i) { i.tokens[0] = 50; }), HasSubstr("tokens[0] = 50"));
  EXPECT_THAT(Refusal([](auto& i) { i.table = {10}; }), HasSubstr("block_table: 1"));
  EXPECT_THAT(Refusal([](auto& i) { i.table[1] = 20; }), HasSubstr("block_table[1] = 20"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.history_blocks = {}; }), HasSubstr("history_blocks: 0"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.history_blocks = {{-1}}; }),
              HasSubstr("history_blocks[0] = -1"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.shares.pop_back(); }), HasSubstr("shares: 2"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.shares[0].history_tokens = 5; }),
              HasSubstr("shares[0].history_tokens = 5"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.shares[0].history_tokens = 8; }),
              HasSubstr("end at 12"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.shares[2].spans[0].count = 10; }),
              HasSubstr("a span of 2 tokens at position 32"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.shares[0].spans[1].count = 33; }),
              HasSubstr("max_positions = 64"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.receive = {{{3}}}; }), HasSubstr("receive: 1 lists"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.receive[0] = {{20}}; }),
              HasSubstr("receive[0][0] = 20"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.receive[1] = {{2}}; }),
              HasSubstr("receive[1]: is this rank itself"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.moved_blocks_max = 0; }),
              HasSubstr("receive[0]: 1 blocks, but moved_blocks_max = 0"));
  const std::vector<int32_t> next(8, 7);
  EXPECT_THAT(Refusal([&](auto& i) {
                i.ring.shares[1].wants_logits = false;
                i.sequence.next_tokens = next;
              }),
              HasSubstr("wants_logits"));
  ExpectGoesOn(expected);
}

// Only the rank that samples hears of it; the others have done their part.
TEST_F(RingFailure, ASequenceThatCannotBeSampledLeavesTheGroupWhole) {
  const std::vector<float> expected = Run();
  for (const bool nan : {false, true}) {
    ResetInputs();
    if (!nan) {
      sampling_.min_tokens = 1;
      for (int32_t id = 0; id < 50; ++id) sampling_.suppressed_until_min_tokens.push_back(id);
    } else {
      const KvRegion& region = engines_[0]->KvRegions()[0];
      std::memset(region.base, 0xff, static_cast<size_t>(region.bytes));  // its history, too
    }
    inputs_[0].sequence.sample = true;
    Run();
    for (const RankInput& input : inputs_) ASSERT_TRUE(input.status.ok()) << input.status;
    EXPECT_EQ(inputs_[0].results[0].status.code(),
              nan ? absl::StatusCode::kInternal : absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(inputs_[1].results[0].status.ok());
    sampling_ = {};
    ResetInputs();
    ExpectRuns(expected);
  }
}

TEST_F(RingFailure, ItIsAloneInItsStep) {
  RankInput& input = inputs_[2];
  input.sequence.tokens = input.tokens;
  input.sequence.block_table = input.table;
  input.sequence.ring = &input.ring;
  SequenceStep plain;
  plain.tokens = input.tokens;
  plain.block_table = input.table;
  const std::vector<SequenceStep> both = {plain, input.sequence};
  const absl::Status status = engines_[2]->Step(both, nullptr, &input.results);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sequences[1].ring: not in such a step"));
}

}  // namespace
}  // namespace skein::engine
