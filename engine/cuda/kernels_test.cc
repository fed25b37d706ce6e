// What kernels do beyond what Ops asks of them: the residual added within RmsNorm, keys rotated
// within StoreKv, a row broadcast. Against ReferenceOps' steps one by one.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/testing_device.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

class Kernels : public testing::Test {
 protected:
  ~Kernels() override {
    for (const auto& [memory, bytes] : allocated_) device_->Free(memory, bytes);
  }

  template <typename T>
  T* OnDevice(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    void* memory = device_->Alloc(bytes).value();
    allocated_.emplace_back(memory, bytes);
    EXPECT_TRUE(device_->Copy(memory, values.data(), bytes, CopyKind::kHostToDevice).ok());
    return static_cast<T*>(memory);
  }

  std::vector<float> OnHost(const float* values, size_t count) {
    std::vector<float> host(count);
    EXPECT_TRUE(
        device_->Copy(host.data(), values, count * sizeof(float), CopyKind::kDeviceToHost).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return host;
  }

  std::vector<float> Random(size_t count) {
    std::normal_distribution<float> draw(0.0f, 1.0f);
    std::vector<float> values(count);
    for (float& value : values) value = draw(random_);
    return values;
  }

  static Matrix View(float* data, int64_t rows, int64_t cols) {
    return {data, DType::kF32, rows, cols, cols};
  }
  static void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << i;
    }
  }

  std::shared_ptr<Device> device_ = OpenTestingDevice();
  std::vector<std::pair<void*, size_t>> allocated_;
  std::mt19937 random_{3};
  ReferenceOps reference_;
};

TEST_F(Kernels, RmsNormAddsTheResidualFirst) {
  for (const int64_t cols : {7, 64, 256, 300, 2048}) {
    const auto count = static_cast<size_t>(5 * cols);
    std::vector<float> x = Random(count), y = Random(count), weight = Random(cols), out(count);
    float* device_x = OnDevice(x);
    float* device_out = OnDevice(out);
    RmsNormKernel(View(device_x, 5, cols), View(OnDevice(y), 5, cols),
                  View(OnDevice(weight), 1, cols), 1e-5f, View(device_out, 5, cols),
                  TestingStream());
    reference_.Add(View(x.data(), 5, cols), View(y.data(), 5, cols));
    reference_.RmsNorm(View(x.data(), 5, cols), View(weight.data(), 1, cols), 1e-5f,
                       View(out.data(), 5, cols));
    ExpectNear(OnHost(device_x, count), x);
    ExpectNear(OnHost(device_out, count), out);
  }
}

TEST_F(Kernels, StoreKvRotatesKeys) {
  for (const int head_dim : {6, 8, 64}) {
    const KvSpec spec{1, 2, head_dim, 4, DType::kF32, 4};
    const int64_t half = head_dim / 2, cols = 2 * head_dim;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < 12 * half; ++i) {
      cos.push_back(std::cos(static_cast<float>(i)));
      sin.push_back(std::sin(static_cast<float>(i)));
    }
    std::vector<float> k = Random(static_cast<size_t>(5 * cols));
    std::vector<float> v = Random(static_cast<size_t>(5 * cols));
    std::vector<float> pool(static_cast<size_t>(spec.num_blocks * spec.BlockBytes()) / 4, -7.0f);
    const std::vector<int32_t> tables = {2, 0, 3};  // two of the first sequence, one of the second
    const std::vector<DeviceSpan> spans = {{1, 3, -1, 3, 0, 0, 4, 2, 0},
                                           {0, 1, -1, 1, 3, 2, 4, 2, 0}};
    float* device_pool = OnDevice(pool);
    StoreKvKernel(View(OnDevice(k), 5, cols), View(OnDevice(v), 5, cols),
                  {OnDevice(spans), OnDevice(tables), 2, 4},
                  {device_pool, DType::kF32, head_dim, spec.BlockBytes() / 4}, OnDevice(cos),
                  OnDevice(sin), TestingStream());

    const std::vector<int32_t> first = {2, 0}, second = {3}, positions = {1, 3, 4, 5, 0};
    reference_.Rope(View(k.data(), 5, cols), positions, {cos.data(), sin.data(), 12, head_dim});
    const std::vector<SequenceSpan> sequences = {{1, 3, 3, first, {}}, {0, 1, 1, second, {}}};
    reference_.StoreKv(View(k.data(), 5, cols), View(v.data(), 5, cols), sequences,
                       {pool.data(), &spec});
    ExpectNear(OnHost(device_pool, pool.size()), pool);
  }
}

TEST_F(Kernels, BroadcastRow) {
  for (const int64_t cols : {3, 64}) {
    const std::vector<float> row = Random(static_cast<size_t>(cols));
    float* out = OnDevice(std::vector<float>(static_cast<size_t>(4 * cols)));
    BroadcastRowKernel(View(OnDevice(row), 1, cols), View(out, 4, cols), TestingStream());
    const std::vector<float> rows = OnHost(out, static_cast<size_t>(4 * cols));
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i], row[i % static_cast<size_t>(cols)]);
    }
  }
}

}  // namespace
}  // namespace skein::engine
