// What kernels do beyond what Ops asks of them: rows behind the last span, a row broadcast.
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/testing/twin_device.h"
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

// As a graph's batch has them: more rows than its spans, and empty spans behind the last.
TEST_F(Kernels, RowsBehindTheLastSpanGoNowhere) {
  constexpr int kHeadDim = 8;
  constexpr int64_t kCols = 2 * kHeadDim;
  const KvSpec spec{1, 2, kHeadDim, 4, DType::kF32, 4};
  const DeviceKv kv = {nullptr, DType::kF32, kHeadDim, spec.BlockBytes() / 4};
  std::vector<float> k = Random(7 * kCols), v = Random(7 * kCols), q = Random(7 * kCols);
  std::vector<float> pool(static_cast<size_t>(spec.num_blocks * spec.BlockBytes()) / 4, -7.0f);
  std::vector<float> out(7 * kCols, 3.0f);
  const std::vector<int32_t> tables = {2, 0, 3};  // two of the first sequence, one of the second
  const std::vector<DeviceSpan> spans = {{0, 3, -1, 3, 0, 0, 4, 2, 0},
                                         {3, 1, -1, 1, 3, 2, 4, 2, 0},
                                         {0, 0, -1, 0, 4, 0, 4, 2, 0},
                                         {0, 0, -1, 0, 4, 0, 4, 2, 0}};
  DeviceKv on_device = kv;
  float* device_pool = OnDevice(pool);
  on_device.base = device_pool;
  const PagedBatch batch = {OnDevice(spans), OnDevice(tables), 4, 7};
  StoreKvKernel(View(OnDevice(k), 7, kCols), View(OnDevice(v), 7, kCols), batch, on_device, nullptr,
                nullptr, nullptr, TestingStream());
  float* device_out = OnDevice(out);
  PlainAttentionKernel(View(OnDevice(q), 7, kCols), batch, on_device, 0.5f,
                       View(device_out, 7, kCols), {}, TestingStream());

  const std::vector<int32_t> first = {2, 0}, second = {3};
  const std::vector<SequenceSpan> sequences = {{0, 3, 3, first, {}}, {3, 1, 1, second, {}}};
  const KvLayerView view = {pool.data(), &spec};
  reference_.StoreKv(View(k.data(), 7, kCols), View(v.data(), 7, kCols), sequences, view, {});
  reference_.PagedAttention(View(q.data(), 7, kCols), sequences, view, 0.5f,
                            View(out.data(), 7, kCols), {});
  ExpectNear(OnHost(device_pool, pool.size()), pool);
  ExpectNear(OnHost(device_out, out.size()), out);
}

// Rows whose copy in shared memory fills the 48 KiB that a launch has without asking: with the sums
// beside it, it has to ask.
TEST_F(Kernels, NormsOfRowsAsWideAsSharedMemory) {
  for (const int64_t cols : {8192, 12272, 12288, 12292, 16384}) {
    const auto count = static_cast<size_t>(2 * cols);
    std::vector<float> x = Random(count), expected(count);
    const std::vector<float> weight = Random(static_cast<size_t>(cols));
    float* out = OnDevice(std::vector<float>(count));
    RmsNormKernel(View(OnDevice(x), 2, cols), {}, View(OnDevice(weight), 1, cols), 1e-5f,
                  View(out, 2, cols), TestingStream());
    std::vector<float> same_weight = weight;
    reference_.RmsNorm(View(x.data(), 2, cols), View(same_weight.data(), 1, cols), 1e-5f,
                       View(expected.data(), 2, cols));
    ExpectNear(OnHost(out, count), expected);
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
