#include "engine/sampling/philox.h"

#include <cmath>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// Known answers published with Random123 (Salmon et al.).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, NumbersAreUniformAndUncorrelatedAlongTheIndex) {
  constexpr int kSamples = 100'000;
  double sum = 0, squares = 0, products = 0, before = UniformSample(7, 0);
  for (int i = 1; i <= kSamples; ++i) {
    const double u = UniformSample(7, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    products += (u - 0.5) * (before - 0.5);
    before = u;
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / kSamples, 0.5, 5 * std::sqrt(1.0 / 12 / kSamples));
  EXPECT_NEAR(squares / kSamples, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kSamples));
  EXPECT_NEAR(products / kSamples, 0.0, 5.0 / 12 / std::sqrt(kSamples));
}

TEST(PhiloxTest, SeedsAndIndicesAreDifferentStreams) {
  EXPECT_NE(UniformSample(1, 0), UniformSample(0, 1));
  EXPECT_NE(UniformSample(1, 0), UniformSample(uint64_t{1} << 32, 0));
  EXPECT_NE(UniformSample(1, 1), UniformSample(1, uint64_t{1} << 32));
}

}  // namespace
}  // namespace skein::engine
