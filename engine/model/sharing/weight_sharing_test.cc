// Ranks that share feed-forward weights, as threads of one process: they say the bits that an
// engine with all weights says, in either mode and while modes change, from an owner's memory alone
// (the checkpoint cannot be read after load); what sharing frees and moves is what was counted.
#include "engine/model/sharing/weight_sharing.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/device/memory_budget.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 9;
constexpr int64_t kBudget = 8 << 20;
constexpr int kHidden = 64;

using Outputs = std::pair<std::vector<std::vector<int32_t>>, std::vector<float>>;

// Calls `before` between the steps of an engine.
class Ordered final : public Engine {
 public:
  Ordered(Engine* engine, std::function<void(int step)> before)
      : engine_(*engine), before_(std::move(before)) {}

  const EngineSpec& Spec() const override { return engine_.Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_.KvRegions(); }
  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress* progress,
                    std::vector<SequenceResult>* results) override {
    before_(step_++);
    return engine_.Step(sequences, progress, results);
  }
  absl::Status StepTogether(const GroupPart& part, std::span<const SequenceStep> sequences,
                            StepProgress* progress, std::vector<SequenceResult>* results) override {
    return engine_.StepTogether(part, sequences, progress, results);
  }

 private:
  Engine& engine_;
  const std::function<void(int step)> before_;
  int step_ = 0;
};

class WeightSharingTest : public ::testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<MemoryBudget> budget;
    std::shared_ptr<WeightSharing> sharing;
    std::unique_ptr<Engine> engine;
    size_t free_before = 0;
  };

  WeightSharingTest() {
    dir_ = ::testing::TempDir() + "/weight_sharing_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    const nlohmann::json config = {{"architectures", {"Qwen2ForCausalLM"}},
                                   {"hidden_size", kHidden},
                                   {"intermediate_size", 161},
                                   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 90},
                                   {"max_position_embeddings", 256}};
    EXPECT_TRUE(
        tools::WriteRandomCheckpoint(dir_, config, {.dtype = DType::kBF16, .seed = 7}).ok());
    sharing_.answer_max = std::chrono::minutes(1);  // every rank answers, however busy the machine
  }
  ~WeightSharingTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Ops> MakeOps() const {
    return *MakeCpuOps({.threads = 1, .reproducible = reproducible_});
  }

  Rank MakeRank() {
    Rank rank;
    rank.budget = std::make_shared<MemoryBudget>(kBudget);
    SharingOptions sharing = sharing_;
    sharing.make_serving_ops = [this] { return MakeOps(); };
    sharing.budget = rank.budget;
    std::unique_ptr<Device> device = MakeCpuDevice();
    if (kv_grows_) sharing.kv_device = device.get();
    rank.sharing = std::make_shared<WeightSharing>(sharing);
    ModelEngineOptions options;
    options.kv_fills_device = fills_device_;
    options.num_blocks = fills_device_ ? 0 : 60;
    options.block_tokens = 4;
    options.max_batch_tokens = 96;
    options.ring_segment_bytes = 3000;
    options.weights_device = MakeBudgetedDevice(MakeCpuDevice(), rank.budget);
    options.sharing = rank.sharing;
    auto engine = MakeModelEngine(dir_, MakeOps(),
                                  MakeBudgetedDevice(std::move(device), rank.budget), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    rank.engine = *std::move(engine);
    rank.free_before = rank.budget->Use().free_bytes;
    return rank;
  }
  // All weights at each; then the checkpoint is gone.
  void MakeRanks(int count, bool keep_checkpoint = false) {
    while (static_cast<int>(ranks_.size()) < count) ranks_.push_back(MakeRank());
    if (!keep_checkpoint) std::filesystem::resize_file(dir_ + "/model.safetensors", 0);
  }

  std::vector<SharingOffer> OffersOfAll() {
    std::vector<SharingOffer> offers;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      auto offer =
          ranks_[rank].sharing->Offer(static_cast<int>(rank), static_cast<int>(ranks_.size()));
      EXPECT_TRUE(offer.ok()) << offer.status();
      offers.push_back(*std::move(offer));
    }
    return offers;
  }
  void EnterAll(SharedMode mode) {
    const std::vector<SharingOffer> offers = OffersOfAll();
    ++epoch_;
    for (Rank& rank : ranks_) {
      EXPECT_EQ(rank.sharing->Enter(epoch_, offers, mode), absl::OkStatus());
    }
  }
  void SwitchAll(SharedMode mode) {
    ++epoch_;
    for (Rank& rank : ranks_) EXPECT_EQ(rank.sharing->SwitchTo(epoch_, mode), absl::OkStatus());
  }
  void LeaveAll() {
    ++epoch_;
    for (Rank& rank : ranks_) EXPECT_EQ(rank.sharing->Leave(epoch_), absl::OkStatus());
  }

  // Prompts whole, in slices and late, then decode in a batch; every rank its own.
  static Outputs OutputsOf(Engine& engine, size_t of_rank) {
    std::vector<GreedyRun> runs = {{.tokens_wanted = 12},
                                   {.tokens_wanted = 9, .slice_tokens = 7},
                                   {.tokens_wanted = 7, .first_step = 3}};
    auto id = static_cast<int32_t>(of_rank + 1);
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t n = 0; n < 20 + 9 * i; ++n) runs[i].prompt.push_back(id = (id * 7 + 3) % 90);
    }
    RunTogether(engine, {&runs[0], &runs[1], &runs[2]});
    Outputs outputs;
    for (const GreedyRun& run : runs) outputs.first.push_back(run.output);
    outputs.second = LogitsAfter(engine, {5, 4, 3, 2, static_cast<int32_t>(of_rank)});
    return outputs;
  }
  void ExpectAll(const std::vector<Outputs>& expected) {
    std::vector<std::thread> threads;
    std::vector<Outputs> outputs(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] { outputs[rank] = OutputsOf(*ranks_[rank].engine, rank); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) EXPECT_EQ(outputs[rank], expected[rank]);
  }
  // By an engine that has all weights.
  std::vector<Outputs> Expected() {
    std::vector<Outputs> expected;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      expected.push_back(OutputsOf(*ranks_[rank].engine, rank));
    }
    return expected;
  }
  int64_t BytesOfLayer(const Rank& rank) const { return rank.sharing->Bytes(2).whole / kLayers; }

  std::string dir_;
  bool reproducible_ = true;
  bool fills_device_ = false;  // no byte is left for buffers of calls
  bool kv_grows_ = false;      // by what sharing frees
  SharingOptions sharing_;
  uint64_t epoch_ = 0;
  std::vector<Rank> ranks_;
};

class RanksTest : public WeightSharingTest, public ::testing::WithParamInterface<int> {};

TEST_P(RanksTest, SayTheBitsOfAllWeightsInBothModesAndAreWhatTheyWereAfterwards) {
  MakeRanks(GetParam());
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kWeights);
  ExpectAll(expected);
  SwitchAll(SharedMode::kCompute);
  ExpectAll(expected);
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.sharing->call_counts()->given_up, 0);
  SwitchAll(SharedMode::kWeights);
  ExpectAll(expected);
  LeaveAll();
  ExpectAll(expected);
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.budget->Use().free_bytes, rank.free_before);
  EnterAll(SharedMode::kCompute);
  ExpectAll(expected);
}

// Enter, switches and Leave while sequences are under way, each rank at its own pace; but none
// leaves before all have entered, as whoever orders it sees to.
TEST_P(RanksTest, SequencesGoOnWhileModesChange) {
  sharing_.answer_max = std::chrono::milliseconds(20);  // of ranks that have not entered yet
  MakeRanks(GetParam());
  const std::vector<Outputs> expected = Expected();
  const std::vector<SharingOffer> offers = OffersOfAll();
  std::latch entered(static_cast<std::ptrdiff_t>(ranks_.size()));
  std::vector<Outputs> outputs(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      WeightSharing& sharing = *ranks_[rank].sharing;
      Ordered engine(ranks_[rank].engine.get(), [&](int step) {
        absl::Status done;
        if (step == 2) done = sharing.Enter(1, offers, SharedMode::kWeights);
        if (step == 2) entered.count_down();
        if (step == 9) entered.wait();
        if (step == 4) done = sharing.SwitchTo(2, SharedMode::kCompute);
        if (step == 6) done = sharing.SwitchTo(3, SharedMode::kWeights);
        if (step == 7) done = sharing.SwitchTo(4, SharedMode::kCompute);
        if (step == 9) done = sharing.Leave(5);
        EXPECT_EQ(done, absl::OkStatus());
      });
      outputs[rank] = OutputsOf(engine, rank);
      EXPECT_FALSE(sharing.shares());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) EXPECT_EQ(outputs[rank], expected[rank]);
}

INSTANTIATE_TEST_SUITE_P(Counts, RanksTest, ::testing::Values(2, 3, 4, 8));

TEST_F(WeightSharingTest, NotReproducibleOpsSayTheSameTokens) {
  reproducible_ = false;
  MakeRanks(2);
  const std::vector<Outputs> expected = Expected();
  for (const SharedMode mode : {SharedMode::kWeights, SharedMode::kCompute}) {
    EnterAll(mode);
    for (size_t rank = 0; rank < 2; ++rank) {
      const Outputs outputs = OutputsOf(*ranks_[rank].engine, rank);
      EXPECT_EQ(outputs.first, expected[rank].first);
      for (size_t i = 0; i < outputs.second.size(); ++i) {
        EXPECT_NEAR(outputs.second[i], expected[rank].second[i], 1e-4);
      }
    }
    LeaveAll();
  }
}

TEST_F(WeightSharingTest, WhatIsFreedIsWhatWasCounted) {
  sharing_.call_rows_max = 4;
  fills_device_ = true;
  MakeRanks(4);
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kWeights);
  ExpectAll(expected);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const SharingBytes bytes = ranks_[i].sharing->Bytes(4);
    const auto freed =
        static_cast<int64_t>(ranks_[i].budget->Use().free_bytes - ranks_[i].free_before);
    // Pages round, and the serving thread has buffers.
    const int64_t serving = 4 * 4 * (kHidden * 6 + 161 * 10);
    EXPECT_NEAR(static_cast<double>(freed),
                static_cast<double>(bytes.Freed(static_cast<int>(i)) - serving),
                static_cast<double>(30 * kDevicePageBytes));
    EXPECT_GT(bytes.Freed(static_cast<int>(i)), bytes.whole / 4);
  }
  LeaveAll();
  ExpectAll(expected);
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.budget->Use().free_bytes, rank.free_before);
}

std::vector<float> LogitsOf(Engine& engine, const std::vector<int32_t>& tokens, int64_t position,
                            const std::vector<int32_t>& table) {
  SequenceStep step;
  step.tokens = tokens;
  step.position = position;
  step.block_table = table;
  step.want_logits = true;
  std::vector<SequenceResult> results;
  const absl::Status status = engine.Step({&step, 1}, nullptr, &results);
  EXPECT_TRUE(status.ok() && results[0].status.ok()) << status << results[0].status;
  return results[0].logits;
}

// KV that is computed in the blocks which sharing frees goes on in own ones, bit for bit.
TEST_F(WeightSharingTest, WhatIsFreedHoldsKvUntilTheWeightsAreBack) {
  sharing_.call_rows_max = 4;
  sharing_.ranks_max = 2;
  fills_device_ = kv_grows_ = true;
  MakeRanks(2);
  Engine& engine = *ranks_[0].engine;
  WeightSharing& sharing = *ranks_[0].sharing;
  const EngineSpec& spec = engine.Spec();
  const std::vector<Outputs> outputs = Expected();
  std::vector<int32_t> prompt(30);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7 % 90);
  std::vector<int32_t> own, extra;
  for (int32_t i = 0; i < 8; ++i) own.push_back(3 * i + 1);
  const std::vector<float> first = LogitsOf(engine, prompt, 0, own);
  const std::vector<float> next = LogitsOf(engine, {5}, 30, own);
  for (int round = 0; round < 3; ++round) {
    EnterAll(round == 1 ? SharedMode::kCompute : SharedMode::kWeights);
    const BlockRange come = sharing.TakeExtraKv();
    EXPECT_EQ(come.first.value, spec.own_blocks());
    ASSERT_GE(come.count, 8);
    ASSERT_LE(come.count, spec.extra_blocks);
    EXPECT_LT(ranks_[0].budget->Use().free_bytes,
              static_cast<size_t>(spec.kv.num_layers) * 2 * kDevicePageBytes)
        << "all of it holds KV";
    extra.clear();
    std::vector<BlockMove> moves;
    for (int32_t i = 0; i < 8; ++i) {
      extra.push_back(come.first.value + static_cast<int32_t>(come.count) - 1 - i);
      moves.push_back({{extra.back()}, {2 * i}});
    }
    EXPECT_EQ(LogitsOf(engine, prompt, 0, extra), first);
    EXPECT_EQ(LogitsOf(engine, {5}, 30, extra), next);
    EXPECT_EQ(sharing.GiveExtraKv(moves), absl::OkStatus());
    LeaveAll();
    for (size_t i = 0; i < moves.size(); ++i) own[i] = moves[i].to.value;
    EXPECT_EQ(LogitsOf(engine, {5}, 30, own), next);
    EXPECT_EQ(ranks_[0].budget->Use().free_bytes, ranks_[0].free_before);
  }
  ExpectAll(outputs);
}

TEST_F(WeightSharingTest, BytesReadAreThoseOfEachStepAndOwner) {
  MakeRanks(3);
  EnterAll(SharedMode::kWeights);
  constexpr int kSteps = 150;
  std::vector<GreedyRun> runs = {{.prompt = {1, 2, 3}, .tokens_wanted = kSteps}};
  RunTogether(*ranks_[1].engine, {&runs[0]});
  const int64_t of_layer = BytesOfLayer(ranks_[1]);
  const auto counts = ranks_[1].sharing->read_counts();
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const int64_t read = counts->from_owner[layer];
    EXPECT_EQ(counts->from_file[layer], 0);
    if (layer % 3 == 1) {
      EXPECT_EQ(read, 0) << layer;
      continue;
    }
    // What is read ahead for a next step comes on top.
    EXPECT_GE(read, kSteps * of_layer) << layer;
    EXPECT_LE(read, (kSteps + 1) * of_layer) << layer;
  }
  // By owner, within 1 % of what was counted.
  const std::vector<int64_t> counted = ranks_[1].sharing->Bytes(3).read[1];
  for (const size_t owner : {0, 2}) {
    int64_t read = 0;
    for (size_t layer = owner; layer < kLayers; layer += 3) read += counts->from_owner[layer];
    const auto expected = static_cast<double>(kSteps * counted[owner]);
    EXPECT_NEAR(static_cast<double>(read), expected, 0.01 * expected);
  }
  for (const size_t idle : {0, 2}) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      EXPECT_LE(ranks_[idle].sharing->read_counts()->from_owner[layer], of_layer);
    }
  }
}

// In CaS one rank works, and the others, without work of their own, compute for it; nothing is
// read.
TEST_F(WeightSharingTest, OwnersWithoutWorkServeAndRowsSentAreThoseOfTheBatch) {
  MakeRanks(3);
  const Outputs expected = OutputsOf(*ranks_[1].engine, 1);
  EnterAll(SharedMode::kCompute);
  const auto reads = ranks_[1].sharing->read_counts();
  std::vector<int64_t> before;
  before.reserve(kLayers);
  for (const auto& bytes : reads->from_owner) before.push_back(bytes);
  EXPECT_EQ(OutputsOf(*ranks_[1].engine, 1), expected);
  for (size_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_LE(reads->from_owner[layer] - before[layer], BytesOfLayer(ranks_[1]));
    const int64_t sent = ranks_[1].sharing->call_counts()->rows_sent[layer];
    const int64_t served = ranks_[layer % 3].sharing->call_counts()->rows_served[layer];
    EXPECT_GT(served, 0);
    EXPECT_EQ(sent, layer % 3 == 1 ? 0 : served) << layer;
  }
  // All rows of all steps, but in the last layer those alone that need logits.
  const auto& rows = ranks_[1].sharing->call_counts()->rows_sent;
  EXPECT_EQ(rows[0], rows[2]);
  EXPECT_LT(rows[8], rows[0]);
  for (const size_t idle : {0, 2}) {
    for (const auto& sent : ranks_[idle].sharing->call_counts()->rows_sent) EXPECT_EQ(sent, 0);
  }
}

TEST_F(WeightSharingTest, StepsWithMoreRowsThanACallTakesReadTheWeights) {
  sharing_.call_rows_max = 8;
  MakeRanks(2);
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kCompute);
  ExpectAll(expected);
  EXPECT_GT(ranks_[0].sharing->read_counts()->from_owner[1], 0);
  EXPECT_GT(ranks_[0].sharing->call_counts()->rows_sent[1], 0);
}

// One that leaves serves no more: the others read its memory, which it keeps.
TEST_F(WeightSharingTest, AnOwnerThatLeftIsReadFrom) {
  sharing_.answer_max = std::chrono::milliseconds(50);  // its last word may not have come
  MakeRanks(2);
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kCompute);
  ASSERT_EQ(ranks_[1].sharing->Leave(++epoch_), absl::OkStatus());
  ExpectAll(expected);
  EXPECT_GT(ranks_[0].sharing->read_counts()->from_owner[1], 0);
  ASSERT_EQ(ranks_[0].sharing->Leave(epoch_), absl::OkStatus());
  ExpectAll(expected);
}

TEST_F(WeightSharingTest, AGroupOfAnotherSizeMayFollow) {
  MakeRanks(3);
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kWeights);
  LeaveAll();
  ranks_.pop_back();
  EnterAll(SharedMode::kWeights);
  ExpectAll(expected);
}

// Each waits for the step that runs, and the next step for it.
TEST_F(WeightSharingTest, OrdersMayComeWhileStepsRun) {
  sharing_.answer_max = std::chrono::milliseconds(20);  // of ranks that have not entered yet
  MakeRanks(2);
  const std::vector<Outputs> expected = Expected();
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      do {
        EXPECT_EQ(OutputsOf(*ranks_[rank].engine, rank), expected[rank]);
      } while (!stop);
    });
  }
  for (int round = 0; round < 3; ++round) {
    EnterAll(SharedMode::kWeights);
    SwitchAll(SharedMode::kCompute);
    LeaveAll();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// With 9 layers 4 ranks free less than slots and buffers of calls take.
TEST_F(WeightSharingTest, APoolThatFillsTheDeviceLeavesRoomIfItIsTold) {
  fills_device_ = true;
  sharing_.ranks_max = 4;
  MakeRanks(4);
  const std::vector<Outputs> expected = Expected();
  EnterAll(SharedMode::kCompute);
  ExpectAll(expected);
  LeaveAll();
  for (const Rank& rank : ranks_) EXPECT_EQ(rank.budget->Use().free_bytes, rank.free_before);
}

TEST_F(WeightSharingTest, TotalsCountAllTimesThatItShared) {
  MakeRanks(2);
  const WeightSharing& sharing = *ranks_[0].sharing;
  SharingTotals before = sharing.Totals();
  EXPECT_EQ(before.bytes_from_owners + before.rows_sent + before.rows_served, 0);
  for (const SharedMode mode : {SharedMode::kWeights, SharedMode::kCompute}) {
    EnterAll(mode);
    OutputsOf(*ranks_[0].engine, 0);
    LeaveAll();
    const SharingTotals after = sharing.Totals();
    EXPECT_GT(after.bytes_from_owners, before.bytes_from_owners) << "they were read back, at least";
    EXPECT_EQ(after.rows_sent > before.rows_sent, mode == SharedMode::kCompute);
    EXPECT_EQ(after.rows_served > before.rows_served, mode == SharedMode::kCompute);
    before = after;
  }
  EXPECT_EQ(before.bytes_from_file, 0);
  EXPECT_EQ(before.calls_given_up, 0);
}

TEST_F(WeightSharingTest, LateOrdersAreRefusedAndRepeatedOnesChangeNothing) {
  MakeRanks(2);
  WeightSharing& sharing = *ranks_[0].sharing;
  EXPECT_TRUE(absl::IsFailedPrecondition(sharing.SwitchTo(1, SharedMode::kCompute)));
  EXPECT_TRUE(absl::IsFailedPrecondition(sharing.Leave(1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(sharing.Enter(1, {}, SharedMode::kWeights)));
  EXPECT_TRUE(absl::IsInvalidArgument(sharing.Offer(2, 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(sharing.Offer(0, 1).status()));
  std::vector<SharingOffer> offers = OffersOfAll();
  std::vector<SharingOffer> other = offers;
  other[1].model_hash = "x";
  EXPECT_TRUE(absl::IsInvalidArgument(sharing.Enter(1, other, SharedMode::kWeights)));
  other = {offers[0]};
  EXPECT_TRUE(absl::IsInvalidArgument(sharing.Enter(1, other, SharedMode::kWeights)));
  other = offers;
  other[1].layers = "77 1";
  const absl::Status unreached = sharing.Enter(1, other, SharedMode::kWeights);
  EXPECT_TRUE(absl::IsUnavailable(unreached)) << unreached;
  EXPECT_THAT(std::string(unreached.message()), HasSubstr("rank 1"));
  EXPECT_FALSE(sharing.shares());

  epoch_ = 4;
  EnterAll(SharedMode::kWeights);
  EXPECT_EQ(sharing.Enter(5, offers, SharedMode::kWeights), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(sharing.Offer(0, 2).status()));
  EXPECT_EQ(sharing.SwitchTo(6, SharedMode::kCompute), absl::OkStatus());
  EXPECT_EQ(sharing.SwitchTo(6, SharedMode::kCompute), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(sharing.SwitchTo(6, SharedMode::kWeights)));
  const absl::Status late = sharing.SwitchTo(5, SharedMode::kWeights);
  EXPECT_TRUE(absl::IsFailedPrecondition(late));
  EXPECT_THAT(std::string(late.message()), HasSubstr("epoch 5 came after one of epoch 6"));
  EXPECT_EQ(sharing.mode(), SharedMode::kCompute);
  EXPECT_EQ(sharing.Leave(7), absl::OkStatus());
  EXPECT_EQ(sharing.Leave(7), absl::OkStatus());
}

}  // namespace
}  // namespace skein::engine
