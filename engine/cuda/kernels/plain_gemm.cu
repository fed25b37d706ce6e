// out = x · wᵀ + bias in f32 on the ordinary cores: tiles of 64 rows by 64 columns, 4 × 4 elements
// a thread, 16 steps of k at a time in shared memory. Every element is summed in the order of k,
// whatever the other rows.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"

namespace skein::engine {
namespace {

constexpr int kTile = 64;
constexpr int kSteps = 16;
constexpr int kSide = 4;          // elements a thread in each direction
constexpr int kLine = kTile + 4;  // shared rows, shifted against bank conflicts
constexpr int kThreads = (kTile / kSide) * (kTile / kSide);

// Steps k0 … k0 + 15 of 64 rows, transposed: tile[k][row]. What is outside is 0.
template <typename T>
__device__ __forceinline__ void LoadTile(const ConstMatrix& m, int64_t first_row, int64_t k0,
                                         float (&tile)[kSteps][kLine]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kSteps; i += kThreads) {
    const int64_t row = first_row + i / kSteps, k = k0 + i % kSteps;
    tile[i % kSteps][i / kSteps] =
        row < m.rows && k < m.cols ? simt::Widen(RowOf<T>(m, row)[k]) : 0.0f;
  }
}

template <typename X, typename W, typename Out>
__global__ void __launch_bounds__(kThreads)
    PlainGemm(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out) {
  SKEIN_SHARED(float, x_tile, [kSteps][kLine]);
  SKEIN_SHARED(float, w_tile, [kSteps][kLine]);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / (kTile / kSide) * kSide, col = thread % (kTile / kSide) * kSide;
  float sums[kSide][kSide] = {};
  for (int64_t k0 = 0; k0 < x.cols; k0 += kSteps) {
    LoadTile<X>(x, first_row, k0, x_tile);
    LoadTile<W>(w, first_col, k0, w_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sums[i][j] += x_tile[k][row + i] * w_tile[k][col + j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const int64_t r = first_row + row + i, c = first_col + col + j;
      if (r >= out.rows || c >= out.cols) continue;
      float sum = sums[i][j];
      if (bias.data != nullptr) {
        sum += bias.dtype == DType::kF32 ? static_cast<const float*>(bias.data)[c]
               : bias.dtype == DType::kBF16
                   ? simt::Widen(static_cast<const BF16*>(bias.data)[c])
                   : simt::Widen(static_cast<const simt::Half*>(bias.data)[c]);
      }
      RowOf<Out>(out, r)[c] = simt::Narrow<Out>(sum);
    }
  }
}

}  // namespace

void PlainGemmKernel(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out,
                     CudaStream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(CeilDivide(out.cols, kTile), CeilDivide(out.rows, kTile));
  const auto launch = [&](auto of_x, auto of_w, auto to) {
    simt::Launch(PlainGemm<decltype(of_x), decltype(of_w), decltype(to)>, grid, kThreads, 0, stream,
                 x, w, bias, out);
  };
  // x and out are f32 or of w's type.
  WithElement(w.dtype, [&](auto of_w) {
    const bool wide_x = x.dtype == DType::kF32, wide_out = out.dtype == DType::kF32;
    if (wide_x && wide_out) launch(float{}, of_w, float{});
    if (wide_x && !wide_out) launch(float{}, of_w, of_w);
    if (!wide_x && wide_out) launch(of_w, of_w, float{});
    if (!wide_x && !wide_out) launch(of_w, of_w, of_w);
  });
}

}  // namespace skein::engine
