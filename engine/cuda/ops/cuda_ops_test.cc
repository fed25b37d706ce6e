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

// The plain kernel, which notes how many columns it is asked for.
class NotingGemm final : public Gemm {
 public:
  explicit NotingGemm(std::vector<int64_t>* columns) : columns_(columns) {}
  void Multiply(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                CudaStream stream) override {
    columns_->push_back(w.rows);
    plain_->Multiply(x, w, bias, out, stream);
  }

 private:
  std::vector<int64_t>* const columns_;
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
  // q, k and v of `x`, with weights whose rows begin at these ones of `w`.
  static std::vector<Product> Products(float* w, float* bias, float* out,
                                       const std::vector<int64_t>& first_rows) {
    std::vector<Product> products;
    int64_t column = 0, index = 0;
    for (const int64_t width : {kQuery, kKv, kKv}) {
      products.push_back({{w + first_rows[static_cast<size_t>(index)] * kDepth, DType::kF32, width,
                           kDepth, kDepth},
                          {bias + column, DType::kF32, 1, width, width},
                          {},
                          {out + column, DType::kF32, kRows, width, kColumns}});
      column += width;
      ++index;
    }
    return products;
  }
  // The columns of each launch; the results are the reference's.
  std::vector<int64_t> Launched(const std::vector<int64_t>& first_rows) {
    std::vector<int64_t> columns;
    CudaOps ops(device_, TestingStream(), std::make_unique<NotingGemm>(&columns), {}, [] {});
    std::vector<float> x = Values(kRows * kDepth, 1), w = Values(40 * kDepth, 2);
    std::vector<float> bias = Values(kColumns, 3), out(kRows * kColumns), expected = out;
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

}  // namespace
}  // namespace skein::engine
