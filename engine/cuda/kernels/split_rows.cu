// f32 rows as several rows of a 16-bit type each, and the sum of their products: how f32
// activations meet 16-bit weights on tensor cores.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"

namespace skein::engine {
namespace {

constexpr int kThreads = 256;
constexpr float kNormalMin = 1.17549435e-38f;  // 2^-126
constexpr float kFraction = 2048.0f;           // 2^11: a half's bits, the hidden one with them

// The largest power of two that is no larger than the row's largest value, so that what is left of
// the row fits halves.
__device__ __forceinline__ float ScaleOf(const float* row, int64_t cols) {
  SKEIN_SHARED(float, maxima, [kThreads / simt::kWarp]);
  const int thread = static_cast<int>(threadIdx.x);
  float most = kNormalMin;
  for (int64_t col = thread; col < cols; col += kThreads) most = fmaxf(most, fabsf(row[col]));
  most = WarpMax(most);
  if (thread % simt::kWarp == 0) maxima[thread / simt::kWarp] = most;
  __syncthreads();
  for (int warp = 0; warp < kThreads / simt::kWarp; ++warp) most = fmaxf(most, maxima[warp]);
  return __uint_as_float(__float_as_uint(most) & 0x7f800000u);
}

__global__ void __launch_bounds__(kThreads) SplitHalf(ConstMatrix x, Matrix parts, float* scales) {
  const int64_t row = blockIdx.x;
  const float* from = RowOf<float>(x, row);
  const float scale = ScaleOf(from, x.cols);
  if (threadIdx.x == 0) scales[row] = scale;
  simt::Half* high = RowOf<simt::Half>(parts, row);
  simt::Half* low = RowOf<simt::Half>(parts, x.rows + row);
  for (int64_t col = threadIdx.x; col < x.cols; col += kThreads) {
    const float value = from[col] / scale;
    high[col] = simt::Narrow<simt::Half>(value);
    low[col] = simt::Narrow<simt::Half>((value - simt::Widen(high[col])) * kFraction);
  }
}

__global__ void __launch_bounds__(kThreads) SplitBF16(ConstMatrix x, Matrix parts) {
  const int64_t row = blockIdx.x;
  const float* from = RowOf<float>(x, row);
  for (int64_t col = threadIdx.x; col < x.cols; col += kThreads) {
    float rest = from[col];
    for (int part = 0; part < 3; ++part) {
      const BF16 piece = simt::Narrow<BF16>(rest);
      RowOf<BF16>(parts, part * x.rows + row)[col] = piece;
      rest -= simt::Widen(piece);
    }
  }
}

// `scales` null: three parts of bf16, else two of halves.
template <typename Bias, typename Out>
__global__ void __launch_bounds__(kThreads)
    Join(ConstMatrix products, const float* scales, ConstVector bias, Matrix out) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (col >= out.cols) return;
  const float first = RowOf<float>(products, row)[col];
  const float second = RowOf<float>(products, out.rows + row)[col];
  float sum = 0.0f;
  if (scales != nullptr) {
    sum = (first + second / kFraction) * scales[row];
  } else {
    sum = first + (second + RowOf<float>(products, 2 * out.rows + row)[col]);
  }
  if (bias.data != nullptr) sum += simt::Widen(static_cast<const Bias*>(bias.data)[col]);
  RowOf<Out>(out, row)[col] = simt::Narrow<Out>(sum);
}

}  // namespace

void SplitRowsKernel(ConstMatrix x, Matrix parts, float* scales, CudaStream stream) {
  if (x.rows == 0 || x.cols == 0) return;
  const auto rows = static_cast<unsigned>(x.rows);
  if (parts.dtype == DType::kF16) {
    simt::Launch(SplitHalf, rows, kThreads, 0, stream, x, parts, scales);
  } else {
    simt::Launch(SplitBF16, rows, kThreads, 0, stream, x, parts);
  }
}

void JoinProductsKernel(ConstMatrix products, const float* scales, ConstVector bias, Matrix out,
                        CudaStream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  const dim3 grid(CeilDivide(out.cols, kThreads), static_cast<unsigned>(out.rows));
  WithElement(bias.dtype, [&](auto of_bias) {
    WithElement(out.dtype, [&](auto to) {
      simt::Launch(Join<decltype(of_bias), decltype(to)>, grid, kThreads, 0, stream, products,
                   scales, bias, out);
    });
  });
}

}  // namespace skein::engine
