// f32 rows with 16-bit weights: as exact as in f32, whatever the rows' sizes, and by products of
// 16-bit rows alone.
#include "engine/cuda/ops/split_gemm.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine/cuda/testing/twin_device.h"
#include "engine/ops/element.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// The plain kernel, which notes what it is given.
class NotingGemm final : public Gemm {
 public:
  struct Notes {
    int64_t wide_rows = 0;  // of f32 x with other weights
    std::vector<int64_t> rows;
  };
  explicit NotingGemm(Notes* notes) : notes_(notes) {}
  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    if (x.dtype != w.dtype) notes_->wide_rows += x.rows;
    notes_->rows.push_back(x.rows);
    plain_->Multiply(x, w, bias, out, stream);
  }
  int64_t SkinnyRowsMax(DType, DType) const override { return 256; }

 private:
  Notes* const notes_;
  const std::unique_ptr<Gemm> plain_ = MakePlainGemm();
};

class SplitGemmTest : public testing::TestWithParam<DType> {
 protected:
  ~SplitGemmTest() override {
    for (const auto& [memory, bytes] : allocated_) device_->Free(memory, bytes);
  }

  void* OnDevice(const void* values, size_t bytes) {
    void* memory = device_->Alloc(bytes).value();
    allocated_.emplace_back(memory, bytes);
    EXPECT_TRUE(device_->Copy(memory, values, bytes, CopyKind::kHostToDevice).ok());
    return memory;
  }

  // out [m, n] of x [m, k] and weights w [n, k] of the tested dtype, and in f64.
  struct Product {
    std::vector<float> actual;
    std::vector<double> expected, sizes;  // sizes: Σ |x w|
  };
  Product Multiply(const std::vector<float>& x, int64_t m, int64_t n, int64_t k,
                   size_t scratch_bytes = kSplitGemmScratchBytes) {
    const size_t count = static_cast<size_t>(n * k);
    std::vector<uint16_t> w(count);
    std::vector<double> wide(count);
    for (size_t i = 0; i < count; ++i) {
      StoreElement(w.data(), GetParam(), static_cast<int64_t>(i), draw_(random_));
      wide[i] = LoadElement(w.data(), GetParam(), static_cast<int64_t>(i));
    }
    std::vector<float> bias(static_cast<size_t>(n), 0.5f);
    Product product;
    product.actual.resize(static_cast<size_t>(m * n));
    auto* out =
        static_cast<float*>(OnDevice(product.actual.data(), product.actual.size() * sizeof(float)));
    auto gemm = MakeSplitGemm(device_, std::make_unique<NotingGemm>(&notes_), scratch_bytes);
    max_rows_ = gemm->SkinnyRowsMax(DType::kF32, GetParam());
    gemm->Multiply({OnDevice(x.data(), x.size() * sizeof(float)), DType::kF32, m, k, k},
                   {OnDevice(w.data(), count * 2), GetParam(), n, k, k},
                   {OnDevice(bias.data(), bias.size() * sizeof(float)), DType::kF32, 1, n, n},
                   {out, DType::kF32, m, n, n}, TestingStream());
    EXPECT_TRUE(device_
                    ->Copy(product.actual.data(), out, product.actual.size() * sizeof(float),
                           CopyKind::kDeviceToHost)
                    .ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t col = 0; col < n; ++col) {
        double sum = 0.5, size = 0.5;
        for (int64_t i = 0; i < k; ++i) {
          const double term =
              double{x[static_cast<size_t>(row * k + i)]} * wide[static_cast<size_t>(col * k + i)];
          sum += term;
          size += std::abs(term);
        }
        product.expected.push_back(sum);
        product.sizes.push_back(size);
      }
    }
    return product;
  }

  std::vector<float> Random(int64_t count, float scale = 1.0f) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = scale * draw_(random_);
    return values;
  }

  static void ExpectExact(const Product& product) {
    for (size_t i = 0; i < product.actual.size(); ++i) {
      ASSERT_NEAR(product.actual[i], product.expected[i], 2e-6 * product.sizes[i]) << i;
    }
  }

  std::shared_ptr<Device> device_ = OpenTestingDevice();
  std::vector<std::pair<void*, size_t>> allocated_;
  std::mt19937 random_{7};
  std::normal_distribution<float> draw_{0.0f, 1.0f};
  NotingGemm::Notes notes_;
  int64_t max_rows_ = 0;
};

TEST_P(SplitGemmTest, IsAsExactAsF32) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {3, 70, 37}, {66, 130, 96}}) {
    ExpectExact(Multiply(Random(m * k), m, n, k));
  }
  EXPECT_EQ(notes_.wide_rows, 0) << "the plain kernel had f32 rows";
  EXPECT_EQ(max_rows_, GetParam() == DType::kF16 ? 128 : 85);
}

// Beyond what f16 holds, and far below; rows of zeros.
TEST_P(SplitGemmTest, RowsMayBeOfAnySize) {
  constexpr int64_t kK = 40;
  for (const float scale : {0.0f, 1e-30f, 1e-6f, 1e6f, 1e30f}) {
    ExpectExact(Multiply(Random(4 * kK, scale), 4, 9, kK));
  }
  std::vector<float> outlier = Random(2 * kK);
  outlier[3] = 1e5f;
  ExpectExact(Multiply(outlier, 2, 9, kK));
  EXPECT_EQ(notes_.wide_rows, 0);
}

TEST_P(SplitGemmTest, NaNStaysInItsRow) {
  constexpr int64_t kK = 24;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = Random(3 * kK);
    x[kK + 5] = bad;
    const Product product = Multiply(x, 3, 8, kK);
    for (size_t i = 0; i < product.actual.size(); ++i) {
      EXPECT_EQ(std::isfinite(product.actual[i]), i / 8 != 1) << i;
    }
  }
}

TEST_P(SplitGemmTest, RowsBeyondTheScratchGoInRuns) {
  constexpr int64_t kM = 20, kN = 33, kK = 48;
  ExpectExact(Multiply(Random(kM * kK), kM, kN, kK, /*scratch_bytes=*/8 << 10));
  EXPECT_GT(notes_.rows.size(), 2u);
  EXPECT_EQ(notes_.wide_rows, 0);
  notes_ = {};
  ExpectExact(Multiply(Random(kM * kK), kM, kN, kK, /*scratch_bytes=*/64));
  EXPECT_EQ(notes_.wide_rows, kM) << "without memory for one row";
}

INSTANTIATE_TEST_SUITE_P(All, SplitGemmTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace skein::engine
