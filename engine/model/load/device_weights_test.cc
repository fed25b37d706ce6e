#include "engine/model/load/device_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "engine/device/cpu_device.h"
#include "engine/ops/products.h"

namespace skein::engine {
namespace {

constexpr int64_t kHidden = 10, kKv = 6, kInner = 14;

// A model of one layer, every tensor of which lies alone.
class DeviceWeightsTest : public testing::Test {
 protected:
  ConstMatrix Numbers(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
    auto& bytes = memory_.emplace_back(static_cast<size_t>(rows * cols) * BytesOf(dtype) + 64);
    for (std::byte& b : bytes) b = static_cast<std::byte>(++last_);
    return {bytes.data(), dtype, rows, cols, cols};
  }
  ModelWeights Make(bool biases) {
    ModelWeights w;
    w.embedding = w.lm_head = Numbers(3, kHidden);
    w.final_norm = Numbers(1, kHidden);
    LayerWeights& layer = w.layers.emplace_back();
    FeedForwardWeights& ffn = layer.feed_forward;
    layer.attention_norm = Numbers(1, kHidden);
    layer.ffn_norm = Numbers(1, kHidden);
    const auto map = [&](int64_t rows, int64_t cols) {
      return Linear{Numbers(rows, cols), biases ? Numbers(1, rows) : ConstVector{}, {}};
    };
    layer.query = map(kHidden, kHidden);
    layer.key = map(kKv, kHidden);
    layer.value = map(kKv, kHidden);
    layer.attention_out = map(kHidden, kHidden);
    ffn.gate = map(kInner, kHidden);
    ffn.up = map(kInner, kHidden);
    ffn.down = map(kHidden, kInner);
    return w;
  }

  // Products of one row by the maps, into one row.
  std::pair<Product, Product> ProductsOf(const Linear& first, const Linear& second) {
    const auto product = [this](const Linear& map, int64_t column) {
      const Matrix out = {results_.data() + column, DType::kF32, 1, map.weight.rows, 100};
      return Product{map.weight, map.bias, map.slice, out};
    };
    return {product(first, 0), product(second, first.weight.rows)};
  }
  bool AreJoined(const Linear& first, const Linear& second) {
    const auto [one, next] = ProductsOf(first, second);
    return Joined(one, next).has_value();
  }
  bool AreBands(const Linear& first, const Linear& second) {
    const auto [one, next] = ProductsOf(first, second);
    const auto joined = JoinedInBands({one, {}}, next);
    return joined.has_value() && !joined->bands.plain();
  }
  // What rank `rank` of two has of the map's outputs.
  static Linear HalfOf(Linear map, int64_t rank) {
    const int64_t half = map.weight.rows / 2;
    const auto behind = [&](const auto& m, int64_t elements) {
      return static_cast<const std::byte*>(m.data) +
             elements * static_cast<int64_t>(BytesOf(m.dtype));
    };
    map.weight.data = behind(map.weight, rank * half * map.weight.stride);
    map.weight.rows = half;
    if (map.bias.empty()) return map;
    map.bias.data = behind(map.bias, rank * half);
    map.bias.cols = map.bias.stride = half;
    return map;
  }
  static void ExpectCopied(const ConstMatrix& copy, const ConstMatrix& from) {
    ASSERT_EQ(copy.rows * copy.cols, from.rows * from.cols);
    EXPECT_NE(copy.data, from.data);
    const size_t bytes = static_cast<size_t>(from.rows * from.cols) * BytesOf(from.dtype);
    EXPECT_EQ(std::memcmp(copy.data, from.data, bytes), 0);
  }

  std::vector<float> results_ = std::vector<float>(100);
  std::deque<std::vector<std::byte>> memory_;
  unsigned char last_ = 0;
  std::unique_ptr<Device> device_ = MakeCpuDevice();
};

TEST_F(DeviceWeightsTest, MapsOfTheSameRowsAreNeighbours) {
  for (const bool biases : {false, true}) {
    const ModelWeights from = Make(biases);
    const auto there = UploadWeights(from, device_.get(), {});
    ASSERT_TRUE(there.ok()) << there.status();
    const LayerWeights &copy = there->weights.layers[0], &layer = from.layers[0];
    EXPECT_FALSE(AreJoined(layer.query, layer.key));
    EXPECT_TRUE(AreJoined(copy.query, copy.key)) << biases;
    EXPECT_TRUE(AreJoined(copy.key, copy.value)) << biases;
    EXPECT_TRUE(AreJoined(copy.feed_forward.gate, copy.feed_forward.up)) << biases;
    for (const int64_t rank : {0, 1}) {
      const auto half = [rank](const Linear& map) { return HalfOf(map, rank); };
      EXPECT_TRUE(AreBands(half(copy.query), half(copy.key))) << biases;
      EXPECT_TRUE(AreBands(half(copy.key), half(copy.value))) << biases;
      EXPECT_TRUE(AreBands(half(copy.feed_forward.gate), half(copy.feed_forward.up))) << biases;
    }
    for (const auto& [to, was] : {std::pair(&copy.query, &layer.query),
                                  {&copy.key, &layer.key},
                                  {&copy.value, &layer.value},
                                  {&copy.attention_out, &layer.attention_out},
                                  {&copy.feed_forward.gate, &layer.feed_forward.gate},
                                  {&copy.feed_forward.up, &layer.feed_forward.up},
                                  {&copy.feed_forward.down, &layer.feed_forward.down}}) {
      ExpectCopied(to->weight, was->weight);
      if (biases) ExpectCopied(to->bias, was->bias);
    }
  }
}

// One of another dtype begins at a place for any dtype.
TEST_F(DeviceWeightsTest, AnotherDtypeIsNoNeighbour) {
  ModelWeights from = Make(/*biases=*/false);
  from.layers[0].key.weight = Numbers(kKv, kHidden, DType::kBF16);
  const auto there = UploadWeights(from, device_.get(), {});
  ASSERT_TRUE(there.ok()) << there.status();
  const LayerWeights& copy = there->weights.layers[0];
  ExpectCopied(copy.key.weight, from.layers[0].key.weight);
  ExpectCopied(copy.value.weight, from.layers[0].value.weight);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.value.weight.data) % 256, 0u);
}

// A layer without feed-forward weights, which are elsewhere.
TEST_F(DeviceWeightsTest, LayersMayLackTensors) {
  ModelWeights from = Make(/*biases=*/true);
  from.layers[0].feed_forward = {};
  const auto there = UploadWeights(from, device_.get(), {});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(there->weights.layers[0].feed_forward.gate.weight.empty());
  ExpectCopied(there->weights.layers[0].value.bias, from.layers[0].value.bias);
}

}  // namespace
}  // namespace skein::engine
