// The emulator itself: grids, barriers, shared memory, asynchronous copies; and that what a kernel
// must not do is said plainly.
#include "engine/cuda/emulator/grid.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/cuda/simt/simt.h"
#include "gtest/gtest.h"

namespace skein::engine::simt {
namespace {

constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled};

__global__ void WriteIndex(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(thread);
}

TEST(Grid, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> out(2 * 3 * 4 * 5 * 6 * 7, -1);
  Launch(WriteIndex, {2, 3, 4}, {5, 6, 7}, 0, nullptr, out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<int>(i % (5 * 6 * 7)));
}

// A tree in shared memory: right only if every barrier holds.
__global__ void SumBlock(const float* x, float* out) {
  SKEIN_SHARED(float, sums, [256]);
  sums[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}

__global__ void SumBlockWithoutABarrier(const float* x, float* out) {
  SKEIN_SHARED(float, sums, [256]);
  sums[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x == 0) {
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += sums[i];
    *out = sum;
  }
}

TEST(Grid, BarriersHoldInEveryOrder) {
  std::vector<float> x(512);
  std::iota(x.begin(), x.end(), 1.0f);
  for (const Order order : kOrders) {
    SetOrder(order);
    float sum = 0;
    Launch(SumBlock, 2, 256, 0, nullptr, x.data(), &sum);
    EXPECT_EQ(sum, 512.0f * 513.0f / 2);
  }
  SetOrder(Order::kBackward);
}

TEST(Grid, AMissingBarrierShowsInSomeOrder) {
  const std::vector<float> x(256, 1.0f);
  int wrong = 0;
  for (const Order order : kOrders) {
    SetOrder(order);
    float sum = 0;
    Launch(SumBlockWithoutABarrier, 1, 256, 0, nullptr, x.data(), &sum);
    wrong += sum == 256.0f ? 0 : 1;
  }
  SetOrder(Order::kBackward);
  EXPECT_GE(wrong, 1);
}

__global__ void CountVotes(int* counts) {
  counts[threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0);
  const bool any = __syncthreads_or(threadIdx.x == 7);
  const bool all = __syncthreads_and(threadIdx.x < 8);
  if (!any || all) counts[threadIdx.x] = -1;
}

TEST(Grid, BarriersCountVotes) {
  std::vector<int> counts(100);
  Launch(CountVotes, 1, 100, 0, nullptr, counts.data());
  EXPECT_EQ(counts, std::vector<int>(100, 34));
}

// Warp 0 produces, warp 1 consumes, over two named barriers.
__global__ void PassOn(const int* in, int* out, int rounds) {
  SKEIN_SHARED(int, box, [32]);
  const unsigned lane = threadIdx.x % 32;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0) BarrierSync(2, 64);  // the box is empty
      box[lane] = in[round * 32 + lane];
      BarrierArrive(1, 64);
    } else {
      BarrierSync(1, 64);  // the box is full
      out[round * 32 + lane] = box[lane];
      if (round + 1 < rounds) BarrierArrive(2, 64);
    }
  }
}

TEST(Grid, NamedBarriersJoinProducersAndConsumers) {
  std::vector<int> in(32 * 5), out(32 * 5);
  std::iota(in.begin(), in.end(), 0);
  for (const Order order : kOrders) {
    SetOrder(order);
    std::fill(out.begin(), out.end(), -1);
    Launch(PassOn, 1, 64, 0, nullptr, in.data(), out.data(), 5);
    EXPECT_EQ(out, in);
  }
  SetOrder(Order::kBackward);
}

__global__ void ReadFreshShared(float* out) {
  const auto* dynamic = reinterpret_cast<const float*>(DynamicShared());
  SKEIN_SHARED(float, one, );
  out[0] = dynamic[0];
  out[1] = one;
  one = 1;
}

TEST(Grid, SharedMemoryIsNotANumberInEveryBlock) {
  float out[2] = {0, 0};
  Launch(ReadFreshShared, 3, 1, 16, nullptr, out);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::isnan(out[1]));
}

// Two stages: the copy of tile i + 1 is on its way while tile i is used.
__global__ void CopyThroughShared(const float4* in, float4* out, int tiles) {
  auto* stages = reinterpret_cast<float4*>(DynamicShared());
  CpAsync16(&stages[threadIdx.x], &in[threadIdx.x]);
  CpAsyncCommit();
  for (int tile = 0; tile < tiles; ++tile) {
    const int next = tile + 1;
    if (next < tiles) {
      CpAsync16(&stages[next % 2 * 32 + threadIdx.x], &in[next * 32 + threadIdx.x]);
    }
    CpAsyncCommit();
    CpAsyncWait<1>();
    __syncthreads();
    out[tile * 32 + threadIdx.x] = stages[tile % 2 * 32 + (threadIdx.x ^ 1)];
    __syncthreads();
  }
}

TEST(AsyncCopy, ArrivesAfterItsWait) {
  std::vector<float4> in(96), out(96);
  for (size_t i = 0; i < in.size(); ++i) in[i].x = static_cast<float>(i);
  Launch(CopyThroughShared, 1, 32, 2 * 32 * sizeof(float4), nullptr, in.data(), out.data(), 3);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i].x, static_cast<float>(i ^ 1));
}

__global__ void CopyPart(const float* in, float* out, int bytes) {
  auto* row = reinterpret_cast<float*>(DynamicShared());
  CpAsync16(row, in, bytes);
  CpAsyncCommit();
  for (int i = 0; i < 4; ++i) out[i] = row[i];  // before the wait: NaN
  CpAsyncWait<0>();
  for (int i = 0; i < 4; ++i) out[4 + i] = row[i];
}

TEST(AsyncCopy, IsNotThereBeforeItsWaitAndFillsWithZeros) {
  alignas(16) const float in[4] = {1, 2, 3, 4};
  float out[8] = {};
  Launch(CopyPart, 1, 1, 16, nullptr, in, out, 8);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out[i]));
  EXPECT_EQ(out[4], 1);
  EXPECT_EQ(out[5], 2);
  EXPECT_EQ(out[6], 0);
  EXPECT_EQ(out[7], 0);
}

// Mistakes.

__global__ void BarrierOfSome() {
  if (threadIdx.x != 5) __syncthreads();
}
__global__ void BarrierAtTwoPlaces() {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void WaitForNobody(const float* in) {
  CpAsync16(DynamicShared(), in);
  CpAsyncCommit();
}
__global__ void LoadMisaligned(const float* in, float* out) { *out = Load<float4>(in + 1).x; }
__global__ void WritePast() { DynamicShared()[16] = 1; }
__global__ void MissOne() { BarrierSync(1, 64); }

TEST(KernelFailureDeathTest, ABarrierThatNotAllThreadsReach) {
  EXPECT_DEATH(Launch(BarrierOfSome, 1, 8, 0, nullptr),
               "7 threads wait in __syncthreads at .*grid_test.cc");
  EXPECT_DEATH(Launch(BarrierOfSome, 1, 8, 0, nullptr),
               "1 threads ended, the first thread \\(5, 0, 0\\) of block \\(0, 0, 0\\)");
  EXPECT_DEATH(Launch(BarrierAtTwoPlaces, 1, 8, 0, nullptr), "other threads of the block wait in");
  EXPECT_DEATH(Launch(MissOne, 1, 32, 0, nullptr), "a multiple of 32 of the block's threads");
}

TEST(KernelFailureDeathTest, ACopyThatIsNeverWaitedFor) {
  alignas(16) const float in[4] = {};
  EXPECT_DEATH(Launch(WaitForNobody, 1, 1, 16, nullptr, in), "ends without waiting for this copy");
}

TEST(KernelFailureDeathTest, BadAddresses) {
  alignas(16) const float in[8] = {};
  float out = 0;
  EXPECT_DEATH(Launch(LoadMisaligned, 1, 1, 0, nullptr, in, &out), "the address is not aligned");
  EXPECT_DEATH(Launch(WaitForNobody, 1, 1, 0, nullptr, in), "outside the shared arrays");
  EXPECT_DEATH(Launch(WritePast, 1, 1, 16, nullptr), "past the end|heap-buffer-overflow");
}

TEST(KernelFailureDeathTest, TooMuchOfSomething) {
  EXPECT_DEATH(Launch(BarrierOfSome, 1, 1025, 0, nullptr), "1 to 1024");
  EXPECT_DEATH(Launch(BarrierOfSome, 0, 1, 0, nullptr), "an empty grid");
  EXPECT_DEATH(Launch(BarrierOfSome, 1, 1, 228 << 10, nullptr), "at most 227 KiB");
}

}  // namespace
}  // namespace skein::engine::simt
