#include "engine/ops/conformance/host_buffer.h"

#include <bit>
#include <cmath>

#include "gtest/gtest.h"

namespace skein::engine {

void HostBuffer::Fill(std::mt19937* random, float spread) {
  std::normal_distribution<float> draw(0.0f, spread);
  for (int64_t r = 0; r < view_.rows; ++r) {
    for (int64_t c = 0; c < view_.cols; ++c) set(r, c, draw(*random));
  }
}

void ExpectNear(const HostBuffer& actual, const HostBuffer& expected, double absolute,
                double relative, const std::string& what) {
  const ConstMatrix shape = expected.const_view();
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      const double a = actual.at(r, c), e = expected.at(r, c);
      if (a == e) continue;  // infinities too
      ASSERT_LE(std::abs(a - e), absolute + relative * std::abs(e))
          << what << " row " << r << " col " << c << ": " << a << " instead of " << e;
    }
  }
}

void ExpectSame(const HostBuffer& actual, const HostBuffer& expected, const std::string& what) {
  ExpectNear(actual, expected, 0.0, 0.0, what);
}

void ExpectSameBits(const HostBuffer& actual, const HostBuffer& expected, int64_t first,
                    const std::string& what) {
  const ConstMatrix shape = actual.const_view();
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual.at(r, c)),
                std::bit_cast<uint32_t>(expected.at(first + r, c)))
          << what << " row " << first + r << " col " << c;
    }
  }
}

}  // namespace skein::engine
