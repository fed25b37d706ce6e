// CudaDevice on the first GPU.
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "engine/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

class GpuDevice : public testing::Test {
 protected:
  std::shared_ptr<CudaDevice> device_ = OpenCudaDevice("cuda:0").value();
};

TEST_F(GpuDevice, AllocIsAlignedAndZero) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{3} << 20}) {
    void* memory = device_->Alloc(bytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    std::vector<char> host(bytes, 1);
    ASSERT_TRUE(device_->Copy(host.data(), memory, bytes, CopyKind::kDeviceToHost).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
    EXPECT_EQ(host, std::vector<char>(bytes, 0));
    device_->Free(memory, bytes);
  }
}

// CUDA's IPC hands over whole pieces of 2 MiB: no two allocations may lie in one.
TEST_F(GpuDevice, AllocationsShareNoPiece) {
  void* a = device_->Alloc(1000).value();
  void* b = device_->Alloc(1000).value();
  EXPECT_NE(reinterpret_cast<uintptr_t>(a) >> 21, reinterpret_cast<uintptr_t>(b) >> 21);
  device_->Free(a, 1000);
  device_->Free(b, 1000);
}

TEST_F(GpuDevice, CopiesAreInOrder) {
  std::vector<int> in(1 << 20), out(in.size());
  std::iota(in.begin(), in.end(), 5);
  const size_t bytes = in.size() * sizeof(int);
  void* a = device_->Alloc(bytes).value();
  void* b = device_->Alloc(bytes).value();
  ASSERT_TRUE(device_->Copy(a, in.data(), bytes, CopyKind::kHostToDevice).ok());
  std::vector<int>(in.size()).swap(in);  // staged already
  ASSERT_TRUE(device_->Copy(b, a, bytes, CopyKind::kDeviceToDevice).ok());
  ASSERT_TRUE(device_->Copy(out.data(), b, bytes, CopyKind::kDeviceToHost).ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(out.front(), 5);
  EXPECT_EQ(out.back(), (1 << 20) + 4);
  device_->Free(a, bytes);
  device_->Free(b, bytes);
}

TEST_F(GpuDevice, TooMuchIsResourceExhaustedAndHarmless) {
  const auto memory = device_->Alloc(size_t{1} << 50);
  ASSERT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string text(memory.status().message());
  EXPECT_NE(text.find("1125899906842624 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes are free"), std::string::npos) << text;
  EXPECT_TRUE(device_->Alloc(1 << 20).ok());
}

TEST_F(GpuDevice, PinnedMemory) {
  PinnedBuffer buffer = PinnedBuffer::Allocate(1 << 20).value();
  std::memset(buffer.data(), 7, buffer.bytes());
  void* memory = device_->Alloc(buffer.bytes()).value();
  ASSERT_TRUE(device_->Copy(memory, buffer.data(), buffer.bytes(), CopyKind::kHostToDevice).ok());
  std::vector<char> back(buffer.bytes());
  ASSERT_TRUE(device_->Copy(back.data(), memory, back.size(), CopyKind::kDeviceToHost).ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(back, std::vector<char>(back.size(), 7));
}

TEST_F(GpuDevice, SaysWhatItIs) {
  EXPECT_GE(device_->Info().capability, 80);
  EXPECT_GT(device_->Info().multiprocessors, 0);
  EXPECT_FALSE(device_->Info().name.empty());
  EXPECT_LE(device_->MemoryInfo().value().free_bytes, device_->Info().memory.total_bytes);
}

}  // namespace
}  // namespace skein::engine
