// Products of the same rows whose weights are neighbours are one launch.
#include "engine/cuda/ops/cuda_ops.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cuda/testing/twin_device.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

// The plain kernel, which notes how many columns it is asked for. With `bands` it takes those, too:
// one by one, as the reference for what was asked.
class NotingGemm final : public Gemm {
 public:
  NotingGemm(std::vector<int64_t>* columns, bool bands) : columns_(columns), bands_(bands) {}
  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    columns_->push_back(w.rows);
    plain_->Multiply(x, w, bias, out, stream);
  }

  bool MultiplyBands(ConstMatrix x, const BandedProduct& one, CudaStream stream) override {
    if (!bands_) return false;
    const Product& all = one.product;
    columns_->push_back(all.out.cols);
    int64_t row = 0;
    for (int64_t column = 0; column < all.out.cols; ++column, ++row) {
      for (size_t i = 0; i < one.bands.at.size(); ++i) {
        if (column == one.bands.at[i]) row += one.bands.skips[i];
      }
      plain_->Multiply(x,
                       {static_cast<const float*>(all.w.data) + row * all.w.stride, all.w.dtype, 1,
                        all.w.cols, all.w.stride},
                       {static_cast<const float*>(all.bias.data) + row, all.bias.dtype, 1, 1, 1},
                       {static_cast<float*>(all.out.data) + column, all.out.dtype, all.out.rows, 1,
                        all.out.stride},
                       stream);
    }
    return true;
  }

 private:
  std::vector<int64_t>* const columns_;
  const bool bands_;
  const std::unique_ptr<Gemm> plain_ = MakePlainGemm();
};

class CudaProducts : public testing::Test {
 protected:
  static constexpr int64_t kRows = 5, kDepth = 12, kQuery = 8, kKv = 4, kColumns = 16;

  ~CudaProducts() override {
    for (const auto& [memory, bytes] : allocated_) device_->Free(memory, bytes);
  }

  float* OnDevice(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    void* memory = device_->Alloc(bytes).value();
    allocated_.emplace_back(memory, bytes);
    EXPECT_TRUE(device_->Copy(memory, values.data(), bytes, CopyKind::kHostToDevice).ok());
    return static_cast<float*>(memory);
  }
  static std::vector<float> Values(int64_t count, int seed) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(seed + 3 * static_cast<int>(i)));
    }
    return values;
  }
  // q, k and v of `x`, with weights and biases that begin at these rows of `w` and of `bias`.
  static std::vector<Product> Products(float* w, float* bias, float* out,
                                       const std::vector<int64_t>& first_rows) {
    std::vector<Product> products;
    int64_t column = 0, index = 0;
    for (const int64_t width : {kQuery, kKv, kKv}) {
      products.push_back(
          {{w + first_rows[static_cast<size_t>(index)] * kDepth, DType::kF32, width, kDepth,
            kDepth},
           {bias + first_rows[static_cast<size_t>(index)], DType::kF32, 1, width, width},
           {},
           {out + column, DType::kF32, kRows, width, kColumns}});
      column += width;
      ++index;
    }
    return products;
  }
  // The columns of each launch; the results are the reference's.
  std::vector<int64_t> Launched(const std::vector<int64_t>& first_rows, bool bands = false) {
    std::vector<int64_t> columns;
    CudaOps ops(device_, TestingStream(), std::make_unique<NotingGemm>(&columns, bands), {}, [] {});
    std::vector<float> x = Values(kRows * kDepth, 1), w = Values(40 * kDepth, 2);
    std::vector<float> bias = Values(40, 3), out(kRows * kColumns), expected = out;
    float* const there = OnDevice(out);
    ops.MatMuls({OnDevice(x), DType::kF32, kRows, kDepth, kDepth},
                Products(OnDevice(w), OnDevice(bias), there, first_rows));
    EXPECT_TRUE(device_->Copy(out.data(), there, out.size() * 4, CopyKind::kDeviceToHost).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    ReferenceOps().MatMuls({x.data(), DType::kF32, kRows, kDepth, kDepth},
                           Products(w.data(), bias.data(), expected.data(), first_rows));
    for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-5) << i;
    return columns;
  }

  std::shared_ptr<Device> device_ = OpenTestingDevice();
  std::vector<std::pair<void*, size_t>> allocated_;
};

TEST_F(CudaProducts, OfNeighboursAreOneLaunch) {
  EXPECT_EQ(Launched({0, kQuery, kQuery + kKv}), std::vector<int64_t>{kColumns});
}

TEST_F(CudaProducts, OfWeightsApartAreSeveral) {
  EXPECT_EQ(Launched({0, 20, 30}), (std::vector<int64_t>{kQuery, kKv, kKv}));
  EXPECT_EQ(Launched({20, 0, kKv}), (std::vector<int64_t>{kQuery, 2 * kKv}));
}

TEST_F(CudaProducts, OfARanksSlicesAreOneLaunchWhereTheGemmTakesBands) {
  EXPECT_EQ(Launched({3, 20, 30}, true), std::vector<int64_t>{kColumns});
  EXPECT_EQ(Launched({0, kQuery, 30}, true), std::vector<int64_t>{kColumns});
  EXPECT_EQ(Launched({0, 20, 20 + kKv}, true), std::vector<int64_t>{kColumns});
  EXPECT_EQ(Launched({0, kQuery, kQuery + kKv}, true), std::vector<int64_t>{kColumns});
  EXPECT_EQ(Launched({20, 0, 10}, true), (std::vector<int64_t>{kQuery, 2 * kKv}));
  EXPECT_EQ(Launched({0, kQuery, 30}), (std::vector<int64_t>{kQuery + kKv, kKv}));
}

}  // namespace
}  // namespace skein::engine
