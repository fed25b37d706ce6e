// Hopper's operations against their definitions: products of matrices that the tests lay out by
// themselves, mbarriers, registers; and each mistake's message.
#include "engine/cuda/emulator/hopper.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "engine/cuda/simt/simt_hopper.h"
#include "gtest/gtest.h"

namespace skein::engine::simt {
namespace {

constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled};

void InAllOrders(const std::function<void()>& run) {
  for (const Order order : kOrders) {
    SetOrder(order);
    run();
  }
  SetOrder(Order::kBackward);
}

template <typename T>
std::vector<T> Random(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<T> values(count);
  for (T& value : values) value = Narrow<T>(draw(random));
  return values;
}

// Of element `minor` of line `major`, lines of 64 elements: atoms of eight lines, whose pieces of
// eight elements change places.
size_t Swizzled(size_t major, size_t minor) {
  const size_t piece = minor / 8, line = major % 8;
  return major / 8 * 512 + line * 64 + (piece ^ line) * 8 + minor % 8;
}

// Copies `count` elements of an operand, laid out by the host, through Store.
template <typename T>
__device__ void CopyIn(T* to, const T* from, int count) {
  for (int i = static_cast<int>(threadIdx.x) * 8; i < count; i += 8 * kWarpgroup) {
    Store(to + i, Load<uint4>(from + i));
  }
}

__device__ int RowOf(int i) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8;
}
__device__ int ColumnOf(int tile, int i) {
  return tile * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

// d [64, 128] = 1 + a [64, 64] · b [64, 128], both K-major: lines of 64 along k.
template <typename T>
__global__ void ProductOfShared(const T* a, const T* b, float* d) {
  auto* shared_a = reinterpret_cast<T*>(DynamicShared());
  T* shared_b = shared_a + 64 * 64;
  CopyIn(shared_a, a, 64 * 64);
  CopyIn(shared_b, b, 128 * 64);
  FenceProxyAsync();
  __syncthreads();
  float sums[16][4];
  for (auto& tile : sums) std::fill_n(tile, 4, 1.0f);
  const uint64_t of_a = WgmmaDescriptor(SharedAddress(shared_a), 16, 1024);
  const uint64_t of_b = WgmmaDescriptor(SharedAddress(shared_b), 16, 1024);
  WgmmaFence();
  for (int k = 0; k < 4; ++k)
    Wgmma<T, 128>(sums, Advance(of_a, 32 * k), Advance(of_b, 32 * k), true);
  WgmmaCommit();
  WgmmaWait<0>();
  Pin(sums);
  for (int tile = 0; tile < 16; ++tile) {
    for (int i = 0; i < 4; ++i) d[RowOf(i) * 128 + ColumnOf(tile, i)] = sums[tile][i];
  }
}

template <typename T>
void ExpectProductOfShared() {
  const auto a = Random<T>(64 * 64, 1), b = Random<T>(128 * 64, 2);  // b: [column][k]
  std::vector<T> lines_a(a.size()), lines_b(b.size());
  for (size_t i = 0; i < a.size(); ++i) lines_a[Swizzled(i / 64, i % 64)] = a[i];
  for (size_t i = 0; i < b.size(); ++i) lines_b[Swizzled(i / 64, i % 64)] = b[i];
  InAllOrders([&] {
    std::vector<float> d(64 * 128);
    Launch(ProductOfShared<T>, 1, 128, 192 * 64 * 2, nullptr, lines_a.data(), lines_b.data(),
           d.data());
    for (size_t row = 0; row < 64; ++row) {
      for (size_t col = 0; col < 128; ++col) {
        float expected = 1.0f;
        for (size_t k = 0; k < 64; ++k) expected += Widen(a[row * 64 + k]) * Widen(b[col * 64 + k]);
        ASSERT_NEAR(d[row * 128 + col], expected, 1e-5) << row << " " << col;
      }
    }
  });
}

TEST(Wgmma, MultipliesKMajorMatricesOfBF16) { ExpectProductOfShared<BF16>(); }
TEST(Wgmma, MultipliesKMajorMatricesOfHalf) { ExpectProductOfShared<Half>(); }

// d [64, kN] = a [64, 32] · b [32, kN]: a from registers; b MN-major, lines of 64 columns, the
// second 64 columns behind the 32 lines of the first.
template <typename T, int kN>
__global__ void ProductOfRegisters(const T* a, const T* b, float* d) {
  auto* shared_b = reinterpret_cast<T*>(DynamicShared());
  CopyIn(shared_b, b, 32 * kN);
  FenceProxyAsync();
  __syncthreads();
  uint32_t fragments[2][4];
  const int pair = static_cast<int>(threadIdx.x) % 4 * 2;
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < 4; ++i) {
      const T* from = a + RowOf(i % 2 * 2) * 32 + 16 * k + pair + i / 2 * 8;
      fragments[k][i] = from[0].bits | uint32_t{from[1].bits} << 16;
    }
  }
  float sums[kN / 8][4];
  const uint64_t of_b = WgmmaDescriptor(SharedAddress(shared_b), 32 * 128, 1024);
  WgmmaFence();
  for (int k = 0; k < 2; ++k) Wgmma<T, kN>(sums, fragments[k], Advance(of_b, 2048 * k), k > 0);
  WgmmaCommit();
  WgmmaWait<0>();
  Pin(sums);
  for (int tile = 0; tile < kN / 8; ++tile) {
    for (int i = 0; i < 4; ++i) d[RowOf(i) * kN + ColumnOf(tile, i)] = sums[tile][i];
  }
}

template <typename T, int kN>
void ExpectProductOfRegisters() {
  const auto a = Random<T>(64 * 32, 3), b = Random<T>(32 * kN, 4);  // b: [k][column]
  std::vector<T> lines(b.size());
  for (size_t k = 0; k < 32; ++k) {
    for (size_t col = 0; col < kN; ++col) {
      lines[col / 64 * 32 * 64 + Swizzled(k, col % 64)] = b[k * kN + col];
    }
  }
  InAllOrders([&] {
    std::vector<float> d(64 * kN);
    Launch(ProductOfRegisters<T, kN>, 1, 128, 32 * kN * 2, nullptr, a.data(), lines.data(),
           d.data());
    for (size_t row = 0; row < 64; ++row) {
      for (size_t col = 0; col < kN; ++col) {
        float expected = 0.0f;
        for (size_t k = 0; k < 32; ++k) expected += Widen(a[row * 32 + k]) * Widen(b[k * kN + col]);
        ASSERT_NEAR(d[row * kN + col], expected, 1e-5) << row << " " << col;
      }
    }
  });
}

TEST(Wgmma, MultipliesRegistersByMnMajorMatrices) {
  ExpectProductOfRegisters<BF16, 64>();
  ExpectProductOfRegisters<BF16, 128>();
  ExpectProductOfRegisters<Half, 64>();
  ExpectProductOfRegisters<Half, 128>();
}

// Ones everywhere: sums of 16. Two groups; what is there after each wait.
__global__ void TwoGroups(float* seen) {
  auto* ones = reinterpret_cast<BF16*>(DynamicShared());
  for (int i = static_cast<int>(threadIdx.x) * 8; i < 128 * 64; i += 8 * kWarpgroup) {
    Store(ones + i, make_uint4(0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u));
  }
  FenceProxyAsync();
  __syncthreads();
  const uint64_t matrix = WgmmaDescriptor(SharedAddress(ones), 16, 1024);
  float first[16][4], second[16][4];
  WgmmaFence();
  Wgmma<BF16, 128>(first, matrix, matrix, false);
  WgmmaCommit();
  Wgmma<BF16, 128>(second, matrix, matrix, false);
  Wgmma<BF16, 128>(second, matrix, matrix, true);
  WgmmaCommit();
  seen[0] = first[3][1];
  WgmmaWait<1>();
  seen[1] = first[3][1];
  seen[2] = second[3][1];
  WgmmaWait<0>();
  seen[3] = second[3][1];
}

TEST(Wgmma, SumsAreThereAfterTheWaitForTheirGroup) {
  float seen[4] = {};
  Launch(TwoGroups, 1, 128, 128 * 128, nullptr, seen);
  EXPECT_TRUE(std::isnan(seen[0]));
  EXPECT_EQ(seen[1], 16.0f);
  EXPECT_TRUE(std::isnan(seen[2]));
  EXPECT_EQ(seen[3], 32.0f);
}

// A warp passes numbers to another through a ring of three places.
__global__ void PassThroughRing(const int* in, int* out, int rounds) {
  auto* filled = reinterpret_cast<uint64_t*>(DynamicShared());  // [3]
  uint64_t* taken = filled + 3;                                 // [3]
  auto* ring = reinterpret_cast<int*>(taken + 3);               // [3][32]
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) {
      MbarrierInit(filled + i, 32);
      MbarrierInit(taken + i, 1);
    }
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int round = 0; round < rounds; ++round) {
    const int place = round % 3, phase = round / 3 % 2;
    if (threadIdx.x < 32) {
      MbarrierWait(taken + place, phase ^ 1);
      ring[place * 32 + lane] = in[round * 32 + lane];
      MbarrierArrive(filled + place);
    } else {
      MbarrierWait(filled + place, phase);
      out[round * 32 + lane] = ring[place * 32 + (lane ^ 5)];
      __syncwarp();
      if (lane == 0) MbarrierArrive(taken + place);
    }
  }
}

TEST(Mbarrier, JoinsAProducerAndAConsumer) {
  std::vector<int> in(32 * 11);
  std::iota(in.begin(), in.end(), 0);
  InAllOrders([&] {
    std::vector<int> out(in.size(), -1);
    Launch(PassThroughRing, 1, 64, 1024, nullptr, in.data(), out.data(), 11);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], static_cast<int>(i ^ 5));
  });
}

template <int kOfOthers>
__global__ void PassRegisters() {
  if (threadIdx.x < 128) {
    LowerRegisters<40>();
  } else {
    RaiseRegisters<kOfOthers>();
  }
}

TEST(Registers, AreGivenUpBeforeOthersTakeThem) {
  InAllOrders([] { Launch(PassRegisters<232>, 1, 384, 0, nullptr); });
}

// Mistakes.

enum class Mistake {
  kNone,
  kNoFence,
  kNoProxyFence,
  kUnfencedCopy,
  kNoWait,
  kOperandChanges,
  kRegistersChange,
  kSumChanges,
  kNoSwizzle,
  kPastTheEnd
};

__global__ void Multiply(Mistake mistake, const uint4* zeros) {
  auto* b = reinterpret_cast<BF16*>(DynamicShared());
  CopyIn(b, reinterpret_cast<const BF16*>(zeros), 64 * 64);
  if (mistake != Mistake::kNoProxyFence) FenceProxyAsync();
  if (mistake == Mistake::kUnfencedCopy && threadIdx.x == 7) {
    CpAsync16(b + 7 * 8, zeros);
    CpAsyncCommit();
    CpAsyncWait<0>();
  }
  __syncthreads();
  uint64_t of_b = WgmmaDescriptor(SharedAddress(b), 16, 1024);
  if (mistake == Mistake::kNoSwizzle) of_b &= ~uint64_t{0} >> 2;
  if (mistake == Mistake::kPastTheEnd) of_b = Advance(of_b, 7 * 1024);
  uint32_t a[4] = {};
  float sums[8][4] = {};
  if (mistake != Mistake::kNoFence) WgmmaFence();
  Wgmma<BF16, 64>(sums, a, of_b, true);
  WgmmaCommit();
  if (mistake == Mistake::kOperandChanges && threadIdx.x == 0) b[64].bits = 1;
  if (mistake == Mistake::kRegistersChange) a[2] = 1;
  if (mistake == Mistake::kSumChanges && threadIdx.x == 77) sums[2][2] = 0;
  if (mistake != Mistake::kNoWait) WgmmaWait<0>();
}

void MultiplyWith(Mistake mistake) {
  const std::vector<uint4> zeros(512, make_uint4(0, 0, 0, 0));
  Launch(Multiply, 1, 128, 8192, nullptr, mistake, zeros.data());
}

TEST(HopperFailureDeathTest, Products) {
  MultiplyWith(Mistake::kNone);
  EXPECT_DEATH(MultiplyWith(Mistake::kNoFence), "no WgmmaFence since the last wait");
  EXPECT_DEATH(MultiplyWith(Mistake::kNoProxyFence), "Store at .*without FenceProxyAsync");
  EXPECT_DEATH(MultiplyWith(Mistake::kUnfencedCopy), "CpAsync16 at .*without FenceProxyAsync");
  EXPECT_DEATH(MultiplyWith(Mistake::kNoWait), "ends without waiting for this product");
  EXPECT_DEATH(MultiplyWith(Mistake::kOperandChanges), "an operand changed before");
  EXPECT_DEATH(MultiplyWith(Mistake::kRegistersChange), "an operand changed before");
  EXPECT_DEATH(MultiplyWith(Mistake::kSumChanges), "a sum changed before");
  EXPECT_DEATH(MultiplyWith(Mistake::kNoSwizzle), "without the 128-byte swizzle");
  EXPECT_DEATH(MultiplyWith(Mistake::kPastTheEnd), "outside of dynamic shared memory");
}

__global__ void FenceOfSome() {
  if (threadIdx.x != 9) WgmmaFence();
}
__global__ void WaitForEver(bool init) {
  auto* barrier = reinterpret_cast<uint64_t*>(DynamicShared());
  if (threadIdx.x == 0 && init) MbarrierInit(barrier, 33);
  __syncthreads();
  MbarrierArrive(barrier);
  MbarrierWait(barrier, 0);
}
__global__ void Overwrite() {
  auto* barrier = reinterpret_cast<uint64_t*>(DynamicShared());
  MbarrierInit(barrier, 1);
  *barrier = 0;
  MbarrierArrive(barrier);
}

TEST(HopperFailureDeathTest, BarriersAndRegisters) {
  EXPECT_DEATH(Launch(FenceOfSome, 1, 128, 0, nullptr), "127 threads wait in WgmmaFence");
  EXPECT_DEATH(Launch(FenceOfSome, 1, 64, 0, nullptr), "not in a warpgroup");
  EXPECT_DEATH(Launch(WaitForEver, 1, 32, 64, nullptr, true), "32 threads wait in MbarrierWait");
  EXPECT_DEATH(Launch(WaitForEver, 1, 32, 64, nullptr, false), "no mbarrier was initialised");
  EXPECT_DEATH(Launch(Overwrite, 1, 1, 64, nullptr), "the mbarrier was overwritten");
  EXPECT_DEATH(Launch(PassRegisters<240>, 1, 384, 0, nullptr), "128 threads wait in RaiseReg");
}

}  // namespace
}  // namespace skein::engine::simt
