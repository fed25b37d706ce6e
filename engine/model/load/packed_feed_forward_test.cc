#include "engine/model/load/packed_feed_forward.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace skein::engine {
namespace {

constexpr int64_t kHidden = 10, kInner = 14;  // no matrix of f32 is a multiple of 256 bytes

FeedForwardWeights Shapes(bool gate_bias, bool up_bias) {
  static const float kNotRead = 0;
  const auto map = [](int64_t rows, int64_t cols, bool bias) {
    Linear linear;
    linear.weight = {&kNotRead, DType::kF32, rows, cols, cols};
    if (bias) linear.bias = {&kNotRead, DType::kF32, 1, rows, rows};
    return linear;
  };
  return {map(kInner, kHidden, gate_bias), map(kInner, kHidden, up_bias),
          map(kHidden, kInner, false)};
}

int64_t OffsetOf(const ConstMatrix& m, const void* packed) {
  return static_cast<const std::byte*>(m.data) - static_cast<const std::byte*>(packed);
}

TEST(PackedFeedForward, UpFollowsGate) {
  const std::byte packed[8192] = {};
  const PackedFeedForward layout(Shapes(/*gate_bias=*/true, /*up_bias=*/true));
  ASSERT_LE(layout.bytes(), 8192);
  const FeedForwardWeights w = layout.At(packed);
  EXPECT_EQ(OffsetOf(w.gate.weight, packed), 0);
  EXPECT_EQ(OffsetOf(w.up.weight, packed), kInner * kHidden * 4);
  EXPECT_EQ(OffsetOf(w.down.weight, packed) % 256, 0);
  EXPECT_EQ(OffsetOf(w.gate.bias, packed) % 256, 0);
  EXPECT_EQ(OffsetOf(w.up.bias, packed), OffsetOf(w.gate.bias, packed) + kInner * 4);
}

// There is nothing that it could follow, so it begins like any other.
TEST(PackedFeedForward, ABiasOfUpAloneIsAligned) {
  const std::byte packed[8192] = {};
  const PackedFeedForward layout(Shapes(/*gate_bias=*/false, /*up_bias=*/true));
  ASSERT_LE(layout.bytes(), 8192);
  const FeedForwardWeights w = layout.At(packed);
  EXPECT_TRUE(w.gate.bias.empty());
  EXPECT_EQ(OffsetOf(w.up.bias, packed) % 256, 0);
  EXPECT_GE(OffsetOf(w.up.bias, packed), OffsetOf(w.down.weight, packed) + kHidden * kInner * 4);
}

}  // namespace
}  // namespace skein::engine
