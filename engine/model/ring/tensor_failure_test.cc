// Ring steps whose tensor groups share the dense part: what is refused, and how all ranks hear of
// one that was given another step, that refuses its part, aborts or dies.
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
#include "engine/ops/cpu/cpu_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRanks = 4;
constexpr int kTp = 2;
constexpr int kBlockTokens = 4;

nlohmann::json Config(int heads) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 24},
          {"intermediate_size", 25},
          {"num_hidden_layers", 3},
          {"num_attention_heads", heads},
          {"head_dim", 8},
          {"vocab_size", 50},
          {"max_position_embeddings", 64}};
}

struct RankInput {
  RingStep ring;
  std::vector<int32_t> tokens;
  std::vector<int32_t> table = {10, 11, 12, 13, 14, 15};
  std::function<void(int)> layer_queued;
  bool want_logits = false;
  std::vector<SequenceResult> results;
  absl::Status status;
};

// (SP, TP) = (2, 2): 26 tokens over ranks 0, 1 and 2. Rank 2 has more than a half of a buffer's
// rows, so that its group exchanges them in pieces; rank 3 has none.
class TensorFailure : public ::testing::Test {
 protected:
  TensorFailure() : ranks_([this] { return hub_.MakeFabric(); }, kRanks) {
    for (size_t r = 0; r < kRanks; ++r) engines_.push_back(Make(Config(2), {}));
    Reset();
  }

  static std::unique_ptr<Engine> Make(const nlohmann::json& config, ModelEngineOptions options) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    static int made = 0;
    const std::string dir =
        ::testing::TempDir() + "/tensor_failure_" + test->name() + "_" + std::to_string(made++);
    EXPECT_TRUE(tools::WriteRandomCheckpoint(dir, config, {.dtype = DType::kF32}).ok());
    options.num_blocks = 20;
    options.block_tokens = kBlockTokens;
    if (options.max_batch_tokens > 16) options.max_batch_tokens = 16;
    auto engine = MakeModelEngine(dir, *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  // A fresh step on fresh groups.
  void Reset() {
    comm_ = ranks_.GroupOfAll();
    tensor_.clear();
    for (const std::vector<int>& members : {std::vector<int>{0, 1}, {2, 3}}) {
      for (auto& group : ranks_.Group(members)) tensor_.push_back(std::move(group));
    }
    const std::vector<RankShare> shares = {
        {0, {{0, 4}, {24, 2}}}, {0, {{4, 8}}}, {0, {{12, 12}}}, {0, {}}};
    inputs_.assign(kRanks, {});
    for (size_t r = 0; r < kRanks; ++r) {
      RankInput& input = inputs_[r];
      input.ring.comm = comm_[r].get();
      input.ring.tensor = tensor_[r].get();
      input.ring.tp = kTp;
      input.ring.shares = shares;
      input.ring.deadline = Later();
      for (const TokenSpan& span : shares[r].spans) {
        for (int64_t i = 0; i < span.count; ++i) {
          input.tokens.push_back(static_cast<int32_t>((span.position + i) * 7 % 50));
        }
      }
    }
    inputs_[0].want_logits = true;
  }

  // Runs the ranks that are there; logits of the last token, at rank 0.
  std::vector<float> Run(const std::vector<size_t>& present = {0, 1, 2, 3}) {
    std::vector<std::thread> threads;
    threads.reserve(present.size());
    for (const size_t r : present) threads.emplace_back([this, r] { RunRank(r, *engines_[r]); });
    for (std::thread& thread : threads) thread.join();
    return inputs_[0].status.ok() && !inputs_[0].results.empty() ? inputs_[0].results[0].logits
                                                                 : std::vector<float>();
  }
  void RunRank(size_t rank, Engine& engine) {
    RankInput& input = inputs_[rank];
    SequenceStep sequence;
    sequence.tokens = input.tokens;
    sequence.block_table = input.table;
    sequence.ring = &input.ring;
    sequence.want_logits = input.want_logits;
    StepProgress progress(input.layer_queued);
    input.status = engine.Step({&sequence, 1}, &progress, &input.results);
  }

  void ExpectGoesOn(const std::vector<float>& expected) {
    Reset();
    const std::vector<float> again = Run();
    for (const RankInput& input : inputs_) ASSERT_TRUE(input.status.ok()) << input.status;
    ASSERT_EQ(again.size(), expected.size());
    EXPECT_EQ(std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)), 0);
  }

  // What rank 1 answers when its step is `edit`ed: all others hear that it refused.
  std::string Refusal(const std::function<void(RankInput&)>& edit) {
    Reset();
    edit(inputs_[1]);
    Run();
    for (const size_t r : {0, 2, 3}) {
      EXPECT_EQ(inputs_[r].status.code(), absl::StatusCode::kUnavailable) << inputs_[r].status;
      EXPECT_THAT(std::string(inputs_[r].status.message()), HasSubstr("rank 1 refused its part"));
    }
    return RefusalOf(inputs_[1]);
  }
  static std::string RefusalOf(const RankInput& input) {
    EXPECT_TRUE(input.status.ok()) << input.status;
    if (!input.status.ok() || input.results.empty()) return "";
    EXPECT_EQ(input.results[0].status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(input.results[0].status.message());
  }

  // All ranks fail when some were given a step that is `edit`ed.
  void ExpectFoundOut(const char* what, const std::function<void()>& edit) {
    SCOPED_TRACE(what);
    Reset();
    edit();
    Run();
    bool told = false;
    for (const RankInput& input : inputs_) {
      EXPECT_TRUE(absl::IsInvalidArgument(input.status) || absl::IsUnavailable(input.status))
          << input.status;
      told |= absl::StrContains(input.status.message(), "other steps or models");
    }
    EXPECT_TRUE(told);
  }

  void ExpectAllUnavailable(const std::vector<size_t>& present) {
    for (const size_t r : present) {
      EXPECT_EQ(inputs_[r].status.code(), absl::StatusCode::kUnavailable) << inputs_[r].status;
    }
  }

  LocalHub hub_;
  TestingRanks ranks_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Communicator>> comm_, tensor_;
  std::vector<RankInput> inputs_;
};

TEST_F(TensorFailure, TheSameStepRepeatsBitByBit) {
  const std::vector<float> first = Run();
  ASSERT_EQ(first.size(), 50u);
  for (int i = 0; i < 5; ++i) ExpectGoesOn(first);
}

// In a chunk that needs no logits nobody has rows in the last layer.
TEST_F(TensorFailure, NoRankNeedsALogit) {
  for (RankInput& input : inputs_) {
    input.want_logits = false;
    for (RankShare& share : input.ring.shares) share.wants_logits = false;
  }
  Run();
  for (const RankInput& input : inputs_) EXPECT_TRUE(input.status.ok()) << input.status;
}

TEST_F(TensorFailure, ARankThatWasGivenAnotherTpIsFoundOutByAll) {
  const std::vector<float> expected = Run();
  for (const size_t rank : {0, 1, 3}) {
    ExpectFoundOut("tp = 1", [&] {
      inputs_[rank].ring.tp = 1;
      inputs_[rank].ring.tensor = nullptr;
    });
  }
  std::vector<std::unique_ptr<Communicator>> all = ranks_.GroupOfAll();
  ExpectFoundOut("tp = 4", [&] {
    inputs_[2].ring.tp = 4;
    inputs_[2].ring.tensor = all[2].get();
  });
  ExpectGoesOn(expected);
}

TEST_F(TensorFailure, RanksOfTwoTensorGroupsFindOut) {
  const std::vector<float> expected = Run();
  std::vector<std::unique_ptr<Communicator>> crossed;
  ExpectFoundOut("0 with 3, 2 with 1", [&] {
    crossed = ranks_.Group(std::vector<int>{0, 3});
    for (auto& group : ranks_.Group(std::vector<int>{2, 1})) crossed.push_back(std::move(group));
    inputs_[0].ring.tensor = crossed[0].get();
    inputs_[3].ring.tensor = crossed[1].get();
    inputs_[2].ring.tensor = crossed[2].get();
    inputs_[1].ring.tensor = crossed[3].get();
  });
  ExpectGoesOn(expected);
}

TEST_F(TensorFailure, AnAbortInMidStepEndsItEverywhere) {
  const std::vector<float> expected = Run();
  for (const int layer : {0, 1, 2}) {
    Reset();
    inputs_[2].layer_queued = [&, layer](int done) {
      if (done == layer) tensor_[2]->Abort(absl::CancelledError("by its request"));
    };
    Run();
    ExpectAllUnavailable({0, 1, 2, 3});
    ExpectGoesOn(expected);
  }
}

TEST_F(TensorFailure, ADeadRankEndsTheStepOfTheOthers) {
  const std::vector<float> expected = Run();
  for (const size_t dead : {1, 3}) {  // with rows and without
    Reset();
    comm_[dead].reset();
    tensor_[dead].reset();
    std::vector<size_t> others;
    for (size_t r = 0; r < kRanks; ++r) {
      if (r != dead) others.push_back(r);
    }
    Run(others);
    ExpectAllUnavailable(others);
    ExpectGoesOn(expected);
  }
}

TEST_F(TensorFailure, ARankThatNeverComesIsWaitedForUntilTheDeadline) {
  const std::vector<float> expected = Run();
  Reset();
  for (RankInput& input : inputs_) {
    input.ring.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  }
  Run({0, 2, 3});
  for (const size_t r : {0, 2, 3}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(inputs_[r].status) ||
                absl::IsUnavailable(inputs_[r].status))
        << inputs_[r].status;
  }
  ExpectGoesOn(expected);
}

TEST_F(TensorFailure, RefusalsNameTheField) {
  const std::vector<float> expected = Run();
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tp = 0; }), HasSubstr("ring.tp = 0: must be a power"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tp = 3; }), HasSubstr("ring.tp = 3: must be a power"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tp = 8; }), HasSubstr("divides the 4 ranks"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tp = 1; }), HasSubstr("ring.tensor: given, but tp = 1"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tensor = nullptr; }),
              HasSubstr("ring.tensor: missing, but tp = 2"));
  EXPECT_THAT(Refusal([](auto& i) { i.ring.tensor = i.ring.comm; }),
              HasSubstr("ring.tensor: a group of 4, but tp = 2"));
  EXPECT_THAT(Refusal([&](auto& i) { i.ring.tensor = tensor_[0].get(); }),
              HasSubstr("ring.tensor: rank 0 there, but rank 1 in comm, where tp = 2"));
  ExpectGoesOn(expected);
}

// Nobody tells the orchestrator what a model can be dealt to: its steps run as with tp = 1 then.
TEST_F(TensorFailure, WhatCannotBeSharedIsNot) {
  ModelEngineOptions not_wanted;
  not_wanted.ring_tp_max = 1;
  for (const auto& [heads, options] :
       {std::pair(3, ModelEngineOptions()), std::pair(2, not_wanted)}) {
    for (auto& engine : engines_) engine = Make(Config(heads), options);
    Reset();
    for (RankInput& input : inputs_) {
      input.ring.tp = 1;
      input.ring.tensor = nullptr;
    }
    const std::vector<float> alone = Run();
    ExpectGoesOn(alone);
  }
}

// Weights in slots come whole: a rank that has them so shares nothing, and the others hear of it.
TEST_F(TensorFailure, RanksOfWhichSomeShareAreFoundOut) {
  SlotOptions slots;
  slots.places.assign(3, FeedForwardPlace::kSlot);
  ModelEngineOptions in_slots;
  in_slots.feed_forward = slots;
  engines_[1] = Make(Config(2), in_slots);
  Reset();
  Run();
  for (const RankInput& input : inputs_) {
    EXPECT_FALSE(input.status.ok() && input.results[0].status.ok());
  }
}

}  // namespace
}  // namespace skein::engine
