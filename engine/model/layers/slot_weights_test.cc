// What a source with slots promises the layer loop: the right weights, read ahead, and errors that
// end one step.
#include "engine/model/layers/slot_weights.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/ops/products.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Place = FeedForwardPlace;

constexpr int kLayers = 4;
constexpr int64_t kInner = 3, kHidden = 2;
constexpr int kNone = -1;
constexpr auto kForEver = std::chrono::seconds(60);  // for what happens at once, if at all

// Layers of f32 weights, each number another one.
class Layers {
 public:
  explicit Layers(bool biases = false) {
    for (int layer = 0; layer < kLayers; ++layer) {
      FeedForwardWeights w;
      for (Linear* linear : {&w.gate, &w.up}) {
        linear->weight = Numbers(kInner, kHidden);
        if (biases) linear->bias = Numbers(1, kInner);
      }
      w.down.weight = Numbers(kHidden, kInner);
      w.down.slice.columns = kInner;
      all.push_back(w);
    }
  }

  std::vector<FeedForwardWeights> all;

 private:
  ConstMatrix Numbers(int64_t rows, int64_t cols) {
    std::vector<float>& m = memory_.emplace_back(static_cast<size_t>(rows * cols));
    std::iota(m.begin(), m.end(), first_);
    first_ += static_cast<float>(m.size());
    return {m.data(), DType::kF32, rows, cols, cols};
  }

  std::deque<std::vector<float>> memory_;
  float first_ = 1;
};

// Reads `layers`; tells and waits as a test wants.
class TestReader final : public FeedForwardReader {
 public:
  TestReader(const std::vector<FeedForwardWeights>& layers, int held)
      : layers_(layers), held_(held) {}

  absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) override {
    std::unique_lock lock(mu_);
    begun_.push_back(layer);
    changed_.notify_all();
    if (!changed_.wait_for(lock, kForEver, [&] { return held_ != layer; })) {
      return absl::InternalError("held for ever");
    }
    const auto error = errors_.find(layer);
    if (error != errors_.end()) return error->second;
    const FeedForwardWeights& weights = layers_[static_cast<size_t>(layer)];
    PackedFeedForward(weights).Pack(weights, offset, to);
    return absl::OkStatus();
  }

  // Whether so many reads were begun, sooner or later.
  bool Begun(size_t count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kForEver, [&] { return begun_.size() >= count; });
  }
  void LetGo() {
    std::lock_guard lock(mu_);
    held_ = kNone;
    changed_.notify_all();
  }
  void Fail(int layer, absl::Status error) {
    std::lock_guard lock(mu_);
    errors_.erase(layer);
    if (!error.ok()) errors_[layer] = std::move(error);
  }
  std::vector<int> Reads() {
    std::lock_guard lock(mu_);
    return begun_;
  }

 private:
  const std::vector<FeedForwardWeights>& layers_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<int> begun_;
  int held_;
  std::map<int, absl::Status> errors_;
};

std::vector<float> NumbersOf(const ConstMatrix& m) {
  std::vector<float> numbers;
  for (int64_t row = 0; row < m.rows; ++row) {
    const auto* data = static_cast<const float*>(m.data) + row * m.stride;
    numbers.insert(numbers.end(), data, data + m.cols);
  }
  return numbers;
}

void Append(const ConstMatrix& m, std::vector<float>* numbers) {
  if (m.empty()) return;
  const std::vector<float> more = NumbersOf(m);
  numbers->insert(numbers->end(), more.begin(), more.end());
}

void ExpectSame(const FeedForwardWeights& w, const FeedForwardWeights& expected) {
  for (const auto& [got, want] :
       {std::pair(&w.gate, &expected.gate), std::pair(&w.up, &expected.up),
        std::pair(&w.down, &expected.down)}) {
    EXPECT_EQ(NumbersOf(got->weight), NumbersOf(want->weight));
    EXPECT_EQ(NumbersOf(got->bias), NumbersOf(want->bias));
    EXPECT_EQ(got->slice.columns, want->slice.columns);
  }
}

class SlotWeightsTest : public ::testing::Test {
 protected:
  SlotWeightsTest() { model_.layers.resize(kLayers); }

  SlotWeights& Make(const SlotOptions& options, int held = kNone) {
    auto reader = std::make_unique<TestReader>(layers_.all, held);
    reader_ = reader.get();
    auto made =
        SlotWeights::Create(&model_, layers_.all, options, std::move(reader), device_.get());
    EXPECT_TRUE(made.ok()) << made.status();
    source_ = *std::move(made);
    return *source_;
  }
  SlotWeights& MakeSlots(int slots, int held = kNone) {
    return Make({.places = std::vector(kLayers, Place::kSlot), .slots = slots}, held);
  }

  // A layer as the loop runs it, tile by tile.
  absl::Status Run(int layer) {
    source_->Layer(layer);
    const FeedForwardWeights& all = layers_.all[static_cast<size_t>(layer)];
    const int tiles = source_->Tiles(layer);
    std::vector<float> gate, up, down;
    for (int tile = 0; tile < tiles; ++tile) {
      const auto w = source_->FeedForward(layer, tile);
      if (!w.ok()) return w.status();
      if (tiles == 1) ExpectSame(**w, all);
      Append((*w)->gate.weight, &gate);
      Append((*w)->up.weight, &up);
      Append((*w)->down.weight, &down);
      source_->Used(layer, tile);
    }
    EXPECT_EQ(gate, NumbersOf(all.gate.weight));
    EXPECT_EQ(up, NumbersOf(all.up.weight));
    EXPECT_EQ(down, NumbersOf(all.down.weight));
    return absl::OkStatus();
  }
  absl::Status RunStep(int layers = kLayers) {
    for (int layer = 0; layer < layers; ++layer) {
      const absl::Status ran = Run(layer);
      if (!ran.ok()) return ran;
    }
    return absl::OkStatus();
  }

  Layers layers_;
  ModelWeights model_;
  std::unique_ptr<Device> device_ = MakeCpuDevice();
  std::unique_ptr<SlotWeights> source_;
  TestReader* reader_ = nullptr;
};

TEST_F(SlotWeightsTest, EveryLayerHasItsWeightsStepAfterStep) {
  for (const int slots : {1, 2, 3, 9}) {
    MakeSlots(slots);
    for (int step = 0; step < 20; ++step) EXPECT_EQ(RunStep(), absl::OkStatus()) << slots;
  }
}

// 24 bytes are one row of gate and of up with a float to spare, or two rows of down.
TEST_F(SlotWeightsTest, TilesMakeUpTheLayerWhateverTheSlotsAndTheOrder) {
  for (const int64_t tile_bytes : {1, 24, 40, 1000}) {
    for (const int slots : {1, 2, 3, 5, 100}) {
      for (int rank = 0; rank < 3; ++rank) {
        SlotOptions options = {.places = std::vector(kLayers, Place::kSlot),
                               .slots = slots,
                               .tile_bytes = tile_bytes,
                               .rank = rank,
                               .ranks = 3};
        for (int layer = rank; layer < kLayers; layer += 3) {
          options.places[static_cast<size_t>(layer)] = Place::kHere;
          model_.layers[static_cast<size_t>(layer)].feed_forward =
              layers_.all[static_cast<size_t>(layer)];
        }
        Make(options);
        for (int step = 0; step < 5; ++step) ASSERT_EQ(RunStep(), absl::OkStatus());
        ASSERT_EQ(RunStep(2), absl::OkStatus());
        ASSERT_EQ(RunStep(), absl::OkStatus());
      }
    }
  }
}

// Rank 1 of 3 owns layer 1 and reads the cycle's layers 2 and 0 in this order, then layer 3.
TEST_F(SlotWeightsTest, ReadsAreShiftedByRankWithinACycle) {
  model_.layers[1].feed_forward = layers_.all[1];
  Make({.places = {Place::kSlot, Place::kHere, Place::kSlot, Place::kSlot},
        .slots = 2,
        .rank = 1,
        .ranks = 3});
  ASSERT_TRUE(reader_->Begun(2));
  EXPECT_EQ(RunStep(), absl::OkStatus());
  ASSERT_TRUE(reader_->Begun(5));
  EXPECT_THAT(reader_->Reads(), ElementsAre(2, 0, 3, 2, 0));
}

TEST_F(SlotWeightsTest, WithoutReadAheadOnlyWhatIsAskedForIsRead) {
  SlotWeights& source = MakeSlots(2);
  EXPECT_EQ(RunStep(), absl::OkStatus());
  ASSERT_TRUE(reader_->Begun(6));
  source.ReadAhead(false);
  for (int step = 0; step < 3; ++step) {
    source.Layer(0);  // runs elsewhere
    EXPECT_EQ(Run(1), absl::OkStatus());
    EXPECT_EQ(Run(3), absl::OkStatus());
  }
  EXPECT_THAT(reader_->Reads(), ElementsAre(0, 1, 2, 3, 0, 1, 1, 3, 1, 3, 1, 3));
  source.ReadAhead(true);
  ASSERT_TRUE(reader_->Begun(14));
  for (int step = 0; step < 3; ++step) EXPECT_EQ(RunStep(), absl::OkStatus());
}

// gate and up are one behind the other, so that a GPU makes one product of theirs.
TEST_F(SlotWeightsTest, BiasesAndNeighbours) {
  const auto joined = [](const FeedForwardWeights& w) {
    std::vector<float> results(2 * kInner);
    const auto product = [&](const Linear& linear, int64_t column) {
      return Product{linear.weight,
                     linear.bias,
                     linear.slice,
                     {results.data() + column, DType::kF32, 1, kInner, 2 * kInner}};
    };
    return Joined(product(w.gate, 0), product(w.up, kInner)).has_value();
  };
  for (const bool biases : {false, true}) {
    layers_ = Layers(biases);
    EXPECT_FALSE(joined(layers_.all[0]));
    SlotWeights& source = MakeSlots(2);
    EXPECT_EQ(RunStep(), absl::OkStatus());
    source.Layer(0);
    EXPECT_TRUE(joined(**source.FeedForward(0, 0)));
    source_.reset();  // it reads the layers
  }
}

TEST_F(SlotWeightsTest, OnlyLayersInSlotsAreRead) {
  model_.layers[2].feed_forward = layers_.all[2];
  SlotWeights& source =
      Make({.places = {Place::kSlot, Place::kElsewhere, Place::kHere, Place::kSlot}, .slots = 2});
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(Run(0), absl::OkStatus());
    EXPECT_EQ(*source.FeedForward(1, 0), nullptr);
    EXPECT_EQ(*source.FeedForward(2, 0), &model_.layers[2].feed_forward);
    source.Used(2, 0);
    EXPECT_EQ(Run(3), absl::OkStatus());
  }
  for (const int layer : reader_->Reads()) EXPECT_TRUE(layer == 0 || layer == 3) << layer;
}

TEST_F(SlotWeightsTest, WithoutLayersInSlotsNothingIsRead) {
  SlotWeights& source = Make({.places = std::vector(kLayers, Place::kElsewhere)});
  source.Layer(0);
  EXPECT_EQ(*source.FeedForward(0, 0), nullptr);
  EXPECT_THAT(reader_->Reads(), ElementsAre());
}

// Two slots are read before the first is asked for, a third only into a slot that was used; and
// the next step's first layers while this one's last are in use.
TEST_F(SlotWeightsTest, SlotsAreFilledAheadAndNoneThatIsInUse) {
  SlotWeights& source = MakeSlots(2);
  ASSERT_TRUE(reader_->Begun(2));
  for (int layer = 0; layer < kLayers; ++layer) {
    source.Layer(layer);
    const auto w = source.FeedForward(layer, 0);
    ASSERT_TRUE(w.ok());
    ASSERT_TRUE(reader_->Begun(static_cast<size_t>(layer) + 2));
    ExpectSame(**w, layers_.all[static_cast<size_t>(layer)]);
    EXPECT_EQ(reader_->Reads().size(), static_cast<size_t>(layer) + 2);
    source.Used(layer, 0);
  }
  ASSERT_TRUE(reader_->Begun(6));
  EXPECT_THAT(reader_->Reads(), ElementsAre(0, 1, 2, 3, 0, 1));
}

// Layer 2 is not read before layers 0 and 1 have run.
TEST_F(SlotWeightsTest, ASlowFillDelaysOnlyTheLayerThatNeedsIt) {
  MakeSlots(3, /*held=*/2);
  EXPECT_EQ(Run(0), absl::OkStatus());
  EXPECT_EQ(Run(1), absl::OkStatus());
  EXPECT_THAT(reader_->Reads(), ::testing::Not(::testing::Contains(3)));
  reader_->LetGo();
  EXPECT_EQ(Run(2), absl::OkStatus());
  EXPECT_EQ(Run(3), absl::OkStatus());
}

TEST_F(SlotWeightsTest, AnErrorEndsTheStepAtItsLayerAndTheNextStepReadsAgain) {
  MakeSlots(2);
  EXPECT_EQ(RunStep(), absl::OkStatus());
  for (int layer = 0; layer < kLayers; ++layer) {
    // What was read ahead is good: only a layer that is read from here on fails.
    reader_->Fail(layer, absl::UnavailableError("owner 3 is gone"));
    absl::Status failed;
    for (int step = 0; step < 2 && failed.ok(); ++step) failed = RunStep();
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()),
                HasSubstr("layer " + std::to_string(layer) +
                          ": its feed-forward weights: owner 3 is gone"));
    EXPECT_EQ(RunStep(layer), absl::OkStatus());  // up to it
    EXPECT_FALSE(RunStep().ok());                 // it fails as long as the reader does
    reader_->Fail(layer, absl::OkStatus());
    for (int step = 0; step < 3; ++step) EXPECT_EQ(RunStep(), absl::OkStatus());
  }
}

// An error of a read ahead may be long past when the step begins.
TEST_F(SlotWeightsTest, AnErrorOfAReadAheadIsNotTheNextStepsIfItCanBeRead) {
  SlotWeights& source = MakeSlots(1);
  EXPECT_EQ(RunStep(kLayers - 1), absl::OkStatus());
  reader_->Fail(0, absl::UnavailableError("passing"));
  EXPECT_EQ(Run(kLayers - 1), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(source.FeedForward(0, 0).status()));  // it has failed
  reader_->Fail(0, absl::OkStatus());
  EXPECT_EQ(RunStep(), absl::OkStatus());
}

// A step that ends early leaves layers read ahead, of which the next one needs others.
TEST_F(SlotWeightsTest, AStepMayEndAnywhere) {
  for (const int slots : {1, 2, 3, 4}) {
    MakeSlots(slots);
    for (int layers = 0; layers <= kLayers; ++layers) {
      EXPECT_EQ(RunStep(layers), absl::OkStatus());
      if (layers < kLayers) {
        // One that takes its weights and then fails.
        source_->Layer(0);
        EXPECT_TRUE(source_->FeedForward(layers, 0).ok());
      }
      EXPECT_EQ(RunStep(), absl::OkStatus()) << slots << " slots, after " << layers << " layers";
    }
  }
}

TEST_F(SlotWeightsTest, ALayerWaitsSoLongAndNoLonger) {
  Make({.places = std::vector(kLayers, Place::kSlot),
        .slots = 1,
        .wait_max = std::chrono::milliseconds(1)},
       /*held=*/0);
  const absl::Status late = Run(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("layer 0: its feed-forward weights: not read within 0.001 s"));
  reader_->LetGo();
}

TEST_F(SlotWeightsTest, TheDeviceHasNoMemoryForSlots) {
  EXPECT_EQ(SlotBytes({.places = std::vector(kLayers, Place::kSlot), .slots = 9}, layers_.all),
            kLayers * static_cast<int64_t>(kDevicePageBytes));
  FeedForwardWeights huge = layers_.all[0];
  huge.gate.weight.rows = int64_t{1} << 56;
  auto made = SlotWeights::Create(&model_, {huge, huge, huge, huge},
                                  {.places = std::vector(kLayers, Place::kSlot)},
                                  std::make_unique<TestReader>(layers_.all, kNone), device_.get());
  EXPECT_TRUE(absl::IsResourceExhausted(made.status())) << made.status();
}

}  // namespace
}  // namespace skein::engine
