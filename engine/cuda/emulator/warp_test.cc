// Warp operations against their definitions: shuffles lane by lane, fragments against a plain
// product.
#include "engine/cuda/emulator/warp.h"

#include <cmath>
#include <random>
#include <vector>

#include "engine/cuda/simt/simt.h"
#include "gtest/gtest.h"

namespace skein::engine::simt {
namespace {

__global__ void ShuffleAll(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(kAllLanes, lane, 5);
  out[32 + lane] = __shfl_sync(kAllLanes, lane, 9, 8);
  out[64 + lane] = __shfl_up_sync(kAllLanes, lane, 3, 16);
  out[96 + lane] = __shfl_down_sync(kAllLanes, lane, 3);
  out[128 + lane] = __shfl_xor_sync(kAllLanes, lane, 17);
}

TEST(Warp, Shuffles) {
  std::vector<int> out(160);
  Launch(ShuffleAll, 1, 32, 0, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], 5);
    EXPECT_EQ(out[32 + lane], lane / 8 * 8 + 1);
    EXPECT_EQ(out[64 + lane], lane % 16 < 3 ? lane : lane - 3);
    EXPECT_EQ(out[96 + lane], lane < 29 ? lane + 3 : lane);
    EXPECT_EQ(out[128 + lane], lane ^ 17);
  }
}

// Halves of a warp go their own ways with masks of their own.
__global__ void ShuffleHalves(double* sums, unsigned* votes) {
  const unsigned lane = threadIdx.x % 32;
  const uint32_t mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  double sum = lane;
  if (lane < 16) {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step, 16);
  } else {
    for (int step = 1; step < 16; step *= 2) sum += __shfl_xor_sync(mask, sum, step, 16);
  }
  sums[threadIdx.x] = sum;
  votes[threadIdx.x] = __ballot_sync(mask, lane % 2 == 1);
  if (__any_sync(mask, lane == 3) != (lane < 16)) votes[threadIdx.x] = 0;
  if (__all_sync(mask, lane < 16) != (lane < 16)) votes[threadIdx.x] = 0;
}

TEST(Warp, MasksOfParts) {
  std::vector<double> sums(64);
  std::vector<unsigned> votes(64);
  Launch(ShuffleHalves, 1, 64, 0, nullptr, sums.data(), votes.data());
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[i], i % 32 < 16 ? 120 : 376);
    EXPECT_EQ(votes[i], i % 32 < 16 ? 0x0000aaaau : 0xaaaa0000u);
  }
}

__global__ void ReduceAll(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int value = lane - 10;
  out[0] = __reduce_add_sync(kAllLanes, value);
  out[1] = __reduce_min_sync(kAllLanes, value);
  out[2] = __reduce_max_sync(kAllLanes, value);
  out[3] = static_cast<int>(__reduce_min_sync(kAllLanes, static_cast<unsigned>(value)));
  out[4] = static_cast<int>(__reduce_or_sync(kAllLanes, 1u << lane));
  out[5] = static_cast<int>(__reduce_xor_sync(kAllLanes, static_cast<unsigned>(lane)));
  out[6] = static_cast<int>(__reduce_and_sync(kAllLanes, ~(1u << lane)));
  __syncwarp();
}

TEST(Warp, Reductions) {
  int out[7] = {};
  Launch(ReduceAll, 1, 32, 0, nullptr, out);
  EXPECT_EQ(out[0], 31 * 16 - 320);
  EXPECT_EQ(out[1], -10);
  EXPECT_EQ(out[2], 21);
  EXPECT_EQ(out[3], 0);
  EXPECT_EQ(out[4], -1);
  EXPECT_EQ(out[5], 0);
  EXPECT_EQ(out[6], 0);
}

// a[r] of row-major A 16x16, b of B 16x8 given as [8][16] (its columns), as mma's layouts say.
template <typename T>
__device__ void FragmentsByHand(const T* a, const T* b, uint32_t (&fa)[4], uint32_t (&fb)[2]) {
  const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto pair = [](const T* p) { return p[0].bits | (uint32_t{p[1].bits} << 16); };
  fa[0] = pair(a + g * 16 + 2 * t);
  fa[1] = pair(a + (g + 8) * 16 + 2 * t);
  fa[2] = pair(a + g * 16 + 2 * t + 8);
  fa[3] = pair(a + (g + 8) * 16 + 2 * t + 8);
  fb[0] = pair(b + g * 16 + 2 * t);
  fb[1] = pair(b + g * 16 + 2 * t + 8);
}

template <typename T>
__global__ void Product(const T* a, const T* b, float* d) {
  uint32_t fa[4], fb[2];
  FragmentsByHand(a, b, fa, fb);
  const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
  float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  Mma16816<T>(sum, fa, fb);
  d[g * 8 + 2 * t] = sum[0];
  d[g * 8 + 2 * t + 1] = sum[1];
  d[(g + 8) * 8 + 2 * t] = sum[2];
  d[(g + 8) * 8 + 2 * t + 1] = sum[3];
}

template <typename T>
void ExpectProduct() {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<T> a(16 * 16), b(8 * 16);
  for (T& value : a) value = Narrow<T>(draw(random));
  for (T& value : b) value = Narrow<T>(draw(random));
  std::vector<float> d(16 * 8);
  Launch(Product<T>, 1, 32, 0, nullptr, a.data(), b.data(), d.data());
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      float expected = 1.0f;
      for (int k = 0; k < 16; ++k) expected += Widen(a[row * 16 + k]) * Widen(b[col * 16 + k]);
      EXPECT_NEAR(d[row * 8 + col], expected, 1e-5) << row << " " << col;
    }
  }
}

TEST(Mma, IsAProductOfBF16) { ExpectProduct<BF16>(); }
TEST(Mma, IsAProductOfHalf) { ExpectProduct<Half>(); }

// The fragments of mma, loaded by ldmatrix: A row by row, B from its columns, and B from rows (as
// values of attention lie) transposed.
__global__ void LoadFragments(const BF16* a, const BF16* b, int* wrong) {
  auto* shared_a = reinterpret_cast<BF16*>(DynamicShared());
  BF16* shared_b = shared_a + 16 * 16;      // [8][16]
  BF16* shared_b_rows = shared_b + 8 * 16;  // [16][8]
  for (unsigned i = threadIdx.x; i < 256; i += 32) shared_a[i] = a[i];
  for (unsigned i = threadIdx.x; i < 128; i += 32) {
    shared_b[i] = b[i];
    shared_b_rows[i % 16 * 8 + i / 16] = b[i];
  }
  __syncthreads();
  uint32_t fa[4], fb[2], la[4], lb[2], lb_transposed[2];
  FragmentsByHand(a, b, fa, fb);
  const unsigned lane = threadIdx.x;
  LdMatrix4(la, shared_a + lane % 16 * 16 + lane / 16 * 8);
  LdMatrix2(lb, shared_b + lane % 8 * 16 + lane / 8 % 2 * 8);
  LdMatrix2<true>(lb_transposed, shared_b_rows + lane % 16 * 8);
  for (int i = 0; i < 4; ++i) wrong[lane] += la[i] != fa[i];
  for (int i = 0; i < 2; ++i) wrong[lane] += lb[i] != fb[i];
  for (int i = 0; i < 2; ++i) wrong[lane] += lb_transposed[i] != fb[i];
}

TEST(LdMatrix, GivesTheFragmentsOfMma) {
  std::vector<BF16> a(16 * 16), b(8 * 16);
  for (size_t i = 0; i < a.size(); ++i) a[i].bits = static_cast<uint16_t>(i);
  for (size_t i = 0; i < b.size(); ++i) b[i].bits = static_cast<uint16_t>(1000 + i);
  std::vector<int> wrong(32);
  Launch(LoadFragments, 1, 32, 1024, nullptr, a.data(), b.data(), wrong.data());
  EXPECT_EQ(wrong, std::vector<int>(32, 0));
}

__global__ void Convert(const float* in, uint32_t* bf16, uint32_t* half, float* back) {
  bf16[threadIdx.x] = Narrow2<BF16>(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
  half[threadIdx.x] = Narrow2<Half>(in[2 * threadIdx.x], in[2 * threadIdx.x + 1]);
  const float2 pair = Widen2<Half>(half[threadIdx.x]);
  back[2 * threadIdx.x] = pair.x;
  back[2 * threadIdx.x + 1] = pair.y;
}

TEST(Conversions, RoundToNearestEven) {
  const std::vector<float> in = {1.0f, -2.0f, 1.00390625f, 1.01171875f, 65504.0f, 1e6f};
  uint32_t bf16[3] = {}, half[3] = {};
  std::vector<float> back(6);
  Launch(Convert, 1, 3, 0, nullptr, in.data(), bf16, half, back.data());
  EXPECT_EQ(bf16[0], 0xc0003f80u);
  EXPECT_EQ(bf16[1], 0x3f823f80u);  // both ties, to even
  EXPECT_EQ(half[0], 0xc0003c00u);
  EXPECT_EQ(half[2], 0x7c007bffu);  // the largest, and infinity
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[3], 1.01171875f);
  EXPECT_TRUE(std::isinf(back[5]));
}

// Mistakes.

__global__ void DivergedShuffle() {
  if (threadIdx.x < 16) __shfl_xor_sync(kAllLanes, 1, 1);
}
__global__ void TwoOperations() {
  if (threadIdx.x < 16) {
    __ballot_sync(kAllLanes, 1);
  } else {
    __syncwarp();
  }
}
__global__ void NotInTheMask() { __shfl_sync(1u, 1, 0); }
__global__ void LoadFromGlobal(const BF16* rows) {
  uint32_t r[2];
  LdMatrix2(r, rows);
}

TEST(KernelFailureDeathTest, WarpOperationsThatNotAllLanesReach) {
  EXPECT_DEATH(Launch(DivergedShuffle, 1, 32, 0, nullptr), "16 threads wait in __shfl_xor_sync");
  EXPECT_DEATH(Launch(TwoOperations, 1, 32, 0, nullptr), "another lane waits in");
  EXPECT_DEATH(Launch(NotInTheMask, 1, 2, 0, nullptr), "not in its own mask");
}

TEST(KernelFailureDeathTest, LdMatrixReadsSharedMemoryOnly) {
  alignas(16) const BF16 rows[8] = {};
  EXPECT_DEATH(Launch(LoadFromGlobal, 1, 32, 0, nullptr, rows), "outside the shared arrays");
}

}  // namespace
}  // namespace skein::engine::simt
