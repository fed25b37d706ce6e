// A model whose weights are not where the checkpoint is mapped: in private memory within a budget,
// whose rest is KV; in slots that are filled while layers run; or elsewhere. The answers are the
// same bits wherever they are.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"
#include "engine/device/cpu_device.h"
#include "engine/device/memory_budget.h"
#include "engine/device/testing/far_device.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/model/layers/plain_attention.h"
#include "engine/model/load/device_weights.h"
#include "engine/model/load/feed_forward_reader.h"
#include "engine/model/loaded_model.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/far_ops.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;
using Place = FeedForwardPlace;

constexpr int kLayers = 5;
constexpr int64_t kBudget = 4 << 20;

class WeightPlacesTest : public ::testing::TestWithParam<DType> {
 protected:
  WeightPlacesTest() {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& c : test) c = c == '/' ? '_' : c;
    dir_ = ::testing::TempDir() + "/weight_places_" + test;
    const nlohmann::json config = {{"architectures", {"Qwen2ForCausalLM"}},  // q, k, v have biases
                                   {"hidden_size", 64},
                                   {"intermediate_size", 160},
                                   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 90},
                                   {"max_position_embeddings", 256}};
    EXPECT_TRUE(tools::WriteRandomCheckpoint(dir_, config, {.dtype = GetParam(), .seed = 5}).ok());
    options_.num_blocks = 60;
    options_.block_tokens = 4;
    options_.max_batch_tokens = 96;
    options_.ring_segment_bytes = 3000;  // else it grows with so small a pool
  }

  static std::unique_ptr<Ops> MakeOps() { return *MakeCpuOps({.threads = 2}); }

  absl::StatusOr<std::unique_ptr<Engine>> Make() {
    return MakeModelEngine(dir_, MakeOps(), MakeCpuDevice(), options_);
  }
  // KV and private weights in one budget.
  absl::StatusOr<std::unique_ptr<Engine>> MakeWithin(int64_t bytes) {
    budget_ = std::make_shared<MemoryBudget>(static_cast<size_t>(bytes));
    options_.num_blocks = 0;
    options_.kv_fills_device = true;
    options_.weights_device = MakeBudgetedDevice(MakeCpuDevice(), budget_);
    return MakeModelEngine(dir_, MakeOps(), MakeBudgetedDevice(MakeCpuDevice(), budget_), options_);
  }
  void UseSlots(int slots) {
    options_.feed_forward = SlotOptions{
        .places = {Place::kSlot, Place::kHere, Place::kSlot, Place::kSlot, Place::kSlot},
        .slots = slots};
  }

  // Prompts whole, in slices and late, then decode in a batch.
  static std::vector<std::vector<int32_t>> Answers(Engine& engine) {
    std::vector<GreedyRun> runs = {{.tokens_wanted = 12},
                                   {.tokens_wanted = 9, .slice_tokens = 7},
                                   {.tokens_wanted = 7, .first_step = 3}};
    int32_t id = 1;
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t n = 0; n < 30 + 9 * i; ++n) runs[i].prompt.push_back(id = (id * 7 + 3) % 90);
    }
    RunTogether(engine, {&runs[0], &runs[1], &runs[2]});
    std::vector<std::vector<int32_t>> answers;
    for (const GreedyRun& run : runs) answers.push_back(run.output);
    return answers;
  }
  // With the bits of some logits.
  static std::pair<std::vector<std::vector<int32_t>>, std::vector<float>> Outputs(Engine& engine) {
    auto answers = Answers(engine);
    return {std::move(answers), LogitsAfter(engine, {5, 4, 3, 2, 1})};
  }

  std::string dir_;
  ModelEngineOptions options_;
  std::shared_ptr<MemoryBudget> budget_;
};

TEST_P(WeightPlacesTest, PrivateWeightsGiveTheSameBitsAndNeedTheFileNoMore) {
  const auto expected = Outputs(**Make());
  options_.weights_device = MakeCpuDevice();
  auto engine = Make();
  ASSERT_TRUE(engine.ok()) << engine.status();
  // A page of a mapping that the file no longer reaches ends the process.
  std::filesystem::resize_file(dir_ + "/model.safetensors", 0);
  EXPECT_EQ(Outputs(**engine), expected);
}

TEST_P(WeightPlacesTest, KvFillsWhatWeightsAndBuffersLeave) {
  auto engine = MakeWithin(kBudget);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const KvSpec kv = (*engine)->Spec().kv;
  const MemoryUse use = *options_.weights_device->MemoryInfo();
  EXPECT_EQ(use.total_bytes, static_cast<size_t>(kBudget));
  // No more block fits, with pages and angles rounded.
  EXPECT_LT(use.free_bytes,
            kLayers * (static_cast<size_t>(kv.BlockBytes()) + kDevicePageBytes) + kDevicePageBytes);
  // A byte more of budget is a byte more of KV.
  constexpr int64_t kMore = 1 << 20;
  const auto larger = MakeWithin(kBudget + kMore);
  ASSERT_TRUE(larger.ok()) << larger.status();
  const int64_t won = (*larger)->Spec().kv.num_blocks - kv.num_blocks;
  const int64_t of_block = kv.BlockBytes() * kLayers;
  EXPECT_NEAR(static_cast<double>(won * of_block), kMore,
              static_cast<double>(2 * of_block + kLayers * kDevicePageBytes));
  EXPECT_EQ(Answers(**engine), Answers(**larger));
}

TEST_P(WeightPlacesTest, AllOfItIsGivenBack) {
  UseSlots(2);
  ASSERT_TRUE(MakeWithin(kBudget).ok());
  options_.weights_device.reset();
  EXPECT_EQ(budget_->Use().free_bytes, static_cast<size_t>(kBudget));
}

TEST_P(WeightPlacesTest, WhatSlotsSaveIsKv) {
  options_.ring_tp_max = 1;  // only weights that are here are shared, through buffers
  const auto whole = MakeWithin(kBudget);
  ASSERT_TRUE(whole.ok()) << whole.status();
  UseSlots(1);
  auto slots = MakeWithin(kBudget);
  ASSERT_TRUE(slots.ok()) << slots.status();
  const KvSpec kv = (*slots)->Spec().kv;
  const int64_t of_layer = 3 * 64 * 160 * static_cast<int64_t>(BytesOf(GetParam()));
  const int64_t of_block = kv.BlockBytes() * kLayers;
  // Four layers of five are not kept, and one slot is.
  const int64_t won = (kv.num_blocks - (*whole)->Spec().kv.num_blocks) * of_block;
  EXPECT_NEAR(static_cast<double>(won), static_cast<double>(3 * of_layer),
              static_cast<double>(of_block + 2 * kLayers * kDevicePageBytes));
  EXPECT_EQ(Outputs(**slots), Outputs(**whole));
}

TEST_P(WeightPlacesTest, ABudgetThatIsTooSmallIsRefusedWithBothNumbers) {
  auto loaded = LoadModel(dir_, MakeOps(), MakeCpuDevice(), options_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const int64_t weights = PlacedBytes((*loaded)->weights);
  absl::Status refused = MakeWithin(weights - 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(refused.message(), "device memory: " + std::to_string(weights - 1) +
                                   " bytes, but the weights alone take " + std::to_string(weights) +
                                   " bytes");
  // No room for buffers, then none for a block: found by trying more and more.
  bool no_block = false;
  int64_t bytes = weights;
  for (; !no_block; bytes += 8192) {
    refused = MakeWithin(bytes).status();
    ASSERT_TRUE(absl::IsResourceExhausted(refused)) << bytes << ": " << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("device memory: " + std::to_string(bytes) +
                          " bytes, of which the weights take " + std::to_string(weights)));
    no_block = refused.message().find("hold no KV block") != std::string::npos;
  }
  for (; !MakeWithin(bytes).ok(); bytes += 8192) ASSERT_LT(bytes, kBudget);
  EXPECT_EQ(budget_->Use().total_bytes, static_cast<size_t>(bytes));
}

TEST_P(WeightPlacesTest, SlotsGiveTheSameBits) {
  const auto expected = Outputs(**Make());
  for (const int slots : {1, 2, 4}) {
    UseSlots(slots);
    auto engine = Make();
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_EQ(Outputs(**engine), expected) << slots;
  }
}

TEST_P(WeightPlacesTest, SlotsOfADeviceWhoseWorkComesLater) {
  const auto expected = Outputs(**Make());
  UseSlots(2);
  const auto far = std::make_shared<FarDevice>(16 << 20);
  auto engine = MakeModelEngine(dir_, MakeFarOps(far, MakeOps()), ShareFarDevice(far), options_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(Outputs(**engine), expected);
}

// Reads for another reader, and lets a test stop or fail it.
struct Switch {
  std::mutex mu;
  std::condition_variable changed;
  int layers_done = 0;
  int slow_layer = -1;  // is read when its KV was told to be written
  absl::Status error;   // of every read
};
class SwitchedReader final : public FeedForwardReader {
 public:
  SwitchedReader(std::unique_ptr<FeedForwardReader> reader, Switch* by)
      : reader_(std::move(reader)), switch_(*by) {}

  absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) override {
    std::unique_lock lock(switch_.mu);
    if (layer == switch_.slow_layer &&
        !switch_.changed.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return switch_.layers_done > layer; })) {
      return absl::InternalError("the layers before it did not run");
    }
    return switch_.error.ok() ? reader_->Read(layer, offset, to) : switch_.error;
  }

 private:
  const std::unique_ptr<FeedForwardReader> reader_;
  Switch& switch_;
};

// One step of a prompt; its logits.
absl::StatusOr<std::vector<float>> Step(Engine& engine, StepProgress* progress = nullptr) {
  const std::vector<int32_t> prompt = {8, 7, 6, 5, 4, 3}, blocks = {2, 0};
  SequenceStep step;
  step.tokens = prompt;
  step.block_table = blocks;
  step.want_logits = true;
  std::vector<SequenceResult> results;
  const absl::Status ran = engine.Step({&step, 1}, progress, &results);
  if (!ran.ok()) return ran;
  return results[0].status.ok() ? absl::StatusOr<std::vector<float>>(results[0].logits)
                                : results[0].status;
}

class SwitchedSlotsTest : public WeightPlacesTest {
 protected:
  std::unique_ptr<Engine> MakeSwitched(int slots) {
    UseSlots(slots);
    options_.feed_forward->make_reader = [this](std::unique_ptr<FeedForwardReader> reader) {
      return std::make_unique<SwitchedReader>(std::move(reader), &switch_);
    };
    auto engine = Make();
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  Switch switch_;
};

// The last layer's weights come only when all layers but its own feed-forward part have run.
TEST_P(SwitchedSlotsTest, ASlowFillDelaysOnlyTheLayerThatNeedsIt) {
  const auto expected = *Step(**Make());
  switch_.slow_layer = kLayers - 1;
  const auto engine = MakeSwitched(4);
  StepProgress progress([&](int layer) {
    std::lock_guard lock(switch_.mu);
    switch_.layers_done = layer + 1;
    switch_.changed.notify_all();
  });
  const auto logits = Step(*engine, &progress);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(*logits, expected);
}

TEST_P(SwitchedSlotsTest, AnErrorEndsItsStepAndNothingElse) {
  const auto engine = MakeSwitched(1);
  const auto expected = Step(*engine);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int round = 0; round < 3; ++round) {
    {
      std::lock_guard lock(switch_.mu);
      switch_.error = absl::UnavailableError("owner 1 is gone");
    }
    const absl::Status failed = Step(*engine).status();
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()),
                HasSubstr(": its feed-forward weights: owner 1 is gone"));
    {
      std::lock_guard lock(switch_.mu);
      switch_.error = absl::OkStatus();
    }
    const auto logits = Step(*engine);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(*logits, *expected);
  }
}

// One ring step of both engines, four tokens each, with moves; how it ended at each.
std::vector<absl::Status> RingOfTwo(TestingRanks& ranks, const std::vector<Engine*>& engines) {
  const auto comm = ranks.GroupOfAll(), moves = ranks.GroupOfAll();
  std::vector<absl::Status> ends(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const std::vector<int32_t> tokens = {1, 2, 3, 4}, blocks = {0};
      RingStep ring;
      ring.comm = comm[r].get();
      ring.moves = moves[r].get();
      ring.shares = {{0, {{0, 4}}}, {0, {{4, 4}}}};
      ring.deadline = Later();
      SequenceStep step;
      step.tokens = tokens;
      step.block_table = blocks;
      step.ring = &ring;
      std::vector<SequenceResult> results;
      ends[r] = engines[r]->Step({&step, 1}, nullptr, &results);
      if (ends[r].ok()) ends[r] = results[0].status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// None of the reader's codes may be taken for one of the engine's own.
TEST_P(SwitchedSlotsTest, AnErrorEndsARingStepAtEveryRankAndNothingElse) {
  LocalHub hub;
  TestingRanks ranks([&] { return hub.MakeFabric(); }, 2);
  const auto whole = Make();
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto slots = MakeSwitched(1);
  const std::vector<Engine*> engines = {whole->get(), slots.get()};
  for (const absl::Status& error :
       {absl::UnavailableError("owner 1 is gone"), absl::InternalError("owner 1 is gone"),
        absl::InvalidArgumentError("owner 1 is gone")}) {
    for (const absl::Status& end : RingOfTwo(ranks, engines)) EXPECT_TRUE(end.ok()) << end;
    {
      std::lock_guard lock(switch_.mu);
      switch_.error = error;
    }
    for (const absl::Status& end : RingOfTwo(ranks, engines)) {
      EXPECT_TRUE(absl::IsUnavailable(end)) << end;
      EXPECT_THAT(std::string(end.message()),
                  HasSubstr(": its feed-forward weights: owner 1 is gone"));
    }
    std::lock_guard lock(switch_.mu);
    switch_.error = absl::OkStatus();
  }
  for (const absl::Status& end : RingOfTwo(ranks, engines)) EXPECT_TRUE(end.ok()) << end;
}

// The feed-forward part of layers that are elsewhere, where a whole model is: rows go there and
// come back. Others run here.
class OwnersFeedForward final : public FeedForwardPhase {
 public:
  OwnersFeedForward(LoadedModel* here, LoadedModel* owner)
      : here_(*here),
        owner_(*owner),
        local_(&here->model, &here->state),
        at_owner_(&owner->model, &owner->state) {}

  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override {
    const auto there = weights.FeedForward(layer, 0);
    if (!there.ok() || *there != nullptr) return local_.Run(w, weights, layer, rows);
    ++layers_at_owner;
    Carry(here_.state, owner_.state, rows.tokens());
    const absl::Status ran =
        at_owner_.Run(owner_.source->Layer(layer), *owner_.source, layer, rows);
    Carry(owner_.state, here_.state, rows.tokens());
    return ran;
  }

  int layers_at_owner = 0;

 private:
  static void Carry(const RunState& from, RunState& to, int64_t rows) {
    const auto bytes = static_cast<size_t>(rows * from.residual.stride) * sizeof(float);
    std::memcpy(to.residual.data, from.residual.data, bytes);
    std::memcpy(to.projected.data, from.projected.data, bytes);
  }

  LoadedModel& here_;
  LoadedModel& owner_;
  LocalFeedForward local_;
  LocalFeedForward at_owner_;
};

// The residual stream behind all layers of a prompt.
absl::StatusOr<std::vector<float>> Residual(LoadedModel& model, FeedForwardPhase& feed_forward) {
  const std::vector<int32_t> table = {3, 1, 0};
  Batch batch;
  for (int i = 0; i < 11; ++i) {
    batch.ids.push_back(3 * i + 1);
    batch.positions.push_back(i);
    batch.logit_rows.push_back(i);
  }
  batch.sequences.push_back({0, 11, 0, table, KvLayout{}});
  PlainAttention attention(&model.model, &batch, &model.state);
  const absl::Status ran =
      RunLayers({attention, feed_forward, *model.source}, kLayers, /*layer_queued=*/nullptr);
  if (!ran.ok()) return ran;
  const auto* rows = static_cast<const float*>(model.state.residual.data);
  return std::vector<float>(rows, rows + batch.tokens() * model.state.residual.stride);
}

TEST_P(WeightPlacesTest, LayersThatAreElsewhereRunInAnotherPhase) {
  auto owner = LoadModel(dir_, MakeOps(), MakeCpuDevice(), options_);
  ASSERT_TRUE(owner.ok()) << owner.status();
  LocalFeedForward whole(&(*owner)->model, &(*owner)->state);
  const auto expected = Residual(**owner, whole);
  ASSERT_TRUE(expected.ok()) << expected.status();

  options_.feed_forward = SlotOptions{.places = {Place::kElsewhere, Place::kHere, Place::kElsewhere,
                                                 Place::kSlot, Place::kElsewhere}};
  auto here = LoadModel(dir_, MakeOps(), MakeCpuDevice(), options_);
  ASSERT_TRUE(here.ok()) << here.status();
  OwnersFeedForward feed_forward(here->get(), owner->get());
  const auto residual = Residual(**here, feed_forward);
  ASSERT_TRUE(residual.ok()) << residual.status();
  EXPECT_EQ(*residual, *expected);
  EXPECT_EQ(feed_forward.layers_at_owner, 3);

  LocalFeedForward local(&(*here)->model, &(*here)->state);
  const absl::Status none = Residual(**here, local).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("layer 0: its feed-forward weights"));
}

TEST_P(WeightPlacesTest, PlacesAreOnePerLayer) {
  options_.feed_forward = SlotOptions{.places = {Place::kSlot}};
  absl::Status refused = Make().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("feed_forward: 1 places"));
  UseSlots(0);
  refused = Make().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
}

std::string NameOfType(const ::testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, WeightPlacesTest, ::testing::Values(DType::kF32, DType::kBF16),
                         NameOfType);
INSTANTIATE_TEST_SUITE_P(Types, SwitchedSlotsTest, ::testing::Values(DType::kF32, DType::kBF16),
                         NameOfType);

}  // namespace
}  // namespace skein::engine
