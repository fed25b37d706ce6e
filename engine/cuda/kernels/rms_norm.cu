// RmsNorm, with the residual's addition before it: a row is read once, kept in shared memory while
// its squares are summed, and written.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"

namespace skein::engine {
namespace {

constexpr int kWarpsMax = 16;
// Rows as long as a head's (QK-norm) are a warp's; four such warps make a block.
constexpr int64_t kWarpRowMax = 256;
constexpr int kWarpRowsABlock = 4;

// A row here is a run of weight.cols columns (a head's): `runs` of them lie in a matrix's row.
template <typename T, typename View>
__device__ __forceinline__ auto RunOf(const View& m, int64_t row, int runs, int64_t cols) {
  return RowOf<T>(m, row / runs) + row % runs * cols;
}

// Adds y where there is one, keeps the row in `kept`, returns the sum of this thread's squares.
template <int kCount>
__device__ __forceinline__ float ReadRow(const Matrix& x, const ConstMatrix& y, int64_t row,
                                         int runs, int64_t cols, int thread, int threads,
                                         float* kept) {
  float* x_row = RunOf<float>(x, row, runs, cols);
  const float* y_row = y.data == nullptr ? nullptr : RunOf<float>(y, row, runs, cols);
  float squares = 0.0f;
  for (int64_t col = thread * kCount; col < cols; col += threads * kCount) {
    float values[kCount];
    LoadPack<kCount>(x_row + col, values);
    if (y_row != nullptr) {
      float more[kCount];
      LoadPack<kCount>(y_row + col, more);
#pragma unroll
      for (int j = 0; j < kCount; ++j) values[j] += more[j];
      StorePack<kCount>(x_row + col, values);
    }
    StorePack<kCount>(kept + col, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) squares += values[j] * values[j];
  }
  return squares;
}

template <typename W, typename Out, int kCount>
__device__ __forceinline__ void WriteRow(const float* kept, float inverse,
                                         const ConstVector& weight, const Matrix& out, int64_t row,
                                         int runs, int thread, int threads) {
  const W* w = static_cast<const W*>(weight.data);
  Out* to = RunOf<Out>(out, row, runs, weight.cols);
  for (int64_t col = thread * kCount; col < weight.cols; col += threads * kCount) {
    float values[kCount], scales[kCount];
    LoadPack<kCount>(kept + col, values);  // what this thread put there
    LoadPack<kCount>(w + col, scales);
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = values[j] * inverse * scales[j];
    StorePack<kCount>(to + col, values);
  }
}

__device__ __forceinline__ float Inverse(float squares, int64_t cols, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
}

// A block a row.
template <typename W, typename Out, int kCount>
__global__ void __launch_bounds__(kWarpsMax * 32)
    RowNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out, int runs) {
  SKEIN_SHARED(float, sums, [kWarpsMax]);
  auto* kept = reinterpret_cast<float*>(simt::DynamicShared());
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t row = blockIdx.x;
  const float own = WarpSum(ReadRow<kCount>(x, y, row, runs, weight.cols, thread, threads, kept));
  if (thread % 32 == 0) sums[thread / 32] = own;
  __syncthreads();
  float squares = 0.0f;
  for (int warp = 0; warp < threads / 32; ++warp) squares += sums[warp];
  WriteRow<W, Out, kCount>(kept, Inverse(squares, weight.cols, eps), weight, out, row, runs, thread,
                           threads);
}

// A warp a row.
template <typename W, typename Out, int kCount>
__global__ void __launch_bounds__(kWarpRowsABlock * 32)
    ShortRowNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out, int runs) {
  SKEIN_SHARED(float4, rows, [kWarpRowsABlock * kWarpRowMax / 4]);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* kept = reinterpret_cast<float*>(rows) + warp * kWarpRowMax;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpRowsABlock + warp;
  if (row >= x.rows * runs) return;
  const float squares = WarpSum(ReadRow<kCount>(x, y, row, runs, weight.cols, lane, 32, kept));
  WriteRow<W, Out, kCount>(kept, Inverse(squares, weight.cols, eps), weight, out, row, runs, lane,
                           32);
}

template <typename W, typename Out, int kCount>
void LaunchNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out,
                CudaStream stream) {
  const int runs = static_cast<int>(x.cols / weight.cols);
  const int64_t rows = x.rows * runs;
  if (weight.cols <= kWarpRowMax) {
    simt::Launch(ShortRowNorm<W, Out, kCount>, CeilDivide(rows, kWarpRowsABlock),
                 kWarpRowsABlock * 32, 0, stream, x, y, weight, eps, out, runs);
    return;
  }
  const unsigned warps = CeilDivide(weight.cols / kCount, 32 * 2);  // two packs a thread
  const unsigned threads = 32 * (warps < kWarpsMax ? warps : kWarpsMax);
  simt::Launch(RowNorm<W, Out, kCount>, static_cast<unsigned>(rows), threads,
               static_cast<size_t>(weight.cols) * sizeof(float), stream, x, y, weight, eps, out,
               runs);
}

}  // namespace

void RmsNormKernel(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out,
                   CudaStream stream) {
  if (x.rows == 0 || x.cols == 0) return;
  const ConstMatrix added = y.empty() ? ConstMatrix(x) : y;
  WithPack(RowsAreAligned(x, added, weight, out), [&](auto count) {
    WithElement(weight.dtype, [&](auto w) {
      WithElement(out.dtype, [&](auto to) {
        LaunchNorm<decltype(w), decltype(to), decltype(count)::value>(x, y, weight, eps, out,
                                                                      stream);
      });
    });
  });
}

}  // namespace skein::engine
