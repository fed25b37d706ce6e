// Embed, Rope, SwiGlu, Add, BroadcastRow: a thread makes a pack of neighbouring elements. Blocks
// are laid out as (columns, rows), rows beyond the grid's height in strides.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"

namespace skein::engine {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kGridRowsMax = 32768;

struct Shape {
  dim3 grid;
  dim3 block;
};

// For rows × items, an item a thread.
Shape ShapeFor(int64_t rows, int64_t items) {
  const auto width = static_cast<unsigned>(items >= kThreads ? kThreads : (items + 31) / 32 * 32);
  return {dim3(CeilDivide(items, width),
               static_cast<unsigned>(rows < kGridRowsMax ? rows : kGridRowsMax)),
          dim3(width)};
}

__device__ __forceinline__ int64_t Item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <typename In, typename Out, int kCount>
__global__ void Embed(const int32_t* ids, ConstMatrix table, Matrix out) {
  const int64_t col = Item() * kCount;
  if (col >= out.cols) return;
  for (int64_t row = blockIdx.y; row < out.rows; row += gridDim.y) {
    float values[kCount];
    LoadPack<kCount>(RowOf<In>(table, ids[row]) + col, values);
    StorePack<kCount>(RowOf<Out>(out, row) + col, values);
  }
}

template <typename In, typename Out, int kCount>
__global__ void BroadcastRow(ConstVector from, Matrix out) {
  const int64_t col = Item() * kCount;
  if (col >= out.cols) return;
  float values[kCount];
  LoadPack<kCount>(static_cast<const In*>(from.data) + col, values);
  for (int64_t row = blockIdx.y; row < out.rows; row += gridDim.y) {
    StorePack<kCount>(RowOf<Out>(out, row) + col, values);
  }
}

template <int kCount>
__global__ void Rope(Matrix x, const int32_t* positions, const float* cos, const float* sin,
                     int head_dim) {
  const int half = head_dim / 2;
  const int64_t pair = Item() * kCount;  // of all heads' pairs of a row
  if (pair >= x.cols / 2) return;
  const int64_t head = pair / half;
  const int64_t i = pair % half;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    float* low = RowOf<float>(x, row) + head * head_dim + i;
    const int64_t angle = positions[row] * static_cast<int64_t>(half) + i;
    float a[kCount], b[kCount], c[kCount], s[kCount], rotated[kCount];
    LoadPack<kCount>(low, a);
    LoadPack<kCount>(low + half, b);
    LoadPack<kCount>(cos + angle, c);
    LoadPack<kCount>(sin + angle, s);
#pragma unroll
    for (int j = 0; j < kCount; ++j) rotated[j] = a[j] * c[j] - b[j] * s[j];
    StorePack<kCount>(low, rotated);
#pragma unroll
    for (int j = 0; j < kCount; ++j) rotated[j] = b[j] * c[j] + a[j] * s[j];
    StorePack<kCount>(low + half, rotated);
  }
}

template <typename Out, int kCount>
__global__ void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) {
  const int64_t col = Item() * kCount;
  if (col >= out.cols) return;
  for (int64_t row = blockIdx.y; row < out.rows; row += gridDim.y) {
    float g[kCount], u[kCount];
    LoadPack<kCount>(RowOf<float>(gate, row) + col, g);
    LoadPack<kCount>(RowOf<float>(up, row) + col, u);
#pragma unroll
    for (int j = 0; j < kCount; ++j) g[j] = g[j] / (1.0f + expf(-g[j])) * u[j];
    StorePack<kCount>(RowOf<Out>(out, row) + col, g);
  }
}

template <int kCount>
__global__ void Add(Matrix x, ConstMatrix y) {
  const int64_t col = Item() * kCount;
  if (col >= x.cols) return;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    float a[kCount], b[kCount];
    LoadPack<kCount>(RowOf<float>(x, row) + col, a);
    LoadPack<kCount>(RowOf<float>(y, row) + col, b);
#pragma unroll
    for (int j = 0; j < kCount; ++j) a[j] += b[j];
    StorePack<kCount>(RowOf<float>(x, row) + col, a);
  }
}

}  // namespace

void EmbedKernel(const int32_t* ids, ConstMatrix table, Matrix out, CudaStream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  WithPack(RowsAreAligned(table, out), [&](auto count) {
    WithElement(table.dtype, [&](auto in) {
      WithElement(out.dtype, [&](auto to) {
        constexpr int kCount = decltype(count)::value;
        const Shape shape = ShapeFor(out.rows, out.cols / kCount);
        simt::Launch(Embed<decltype(in), decltype(to), kCount>, shape.grid, shape.block, 0, stream,
                     ids, table, out);
      });
    });
  });
}

void BroadcastRowKernel(ConstVector row, Matrix out, CudaStream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  WithPack(RowsAreAligned(row, out), [&](auto count) {
    WithElement(row.dtype, [&](auto in) {
      WithElement(out.dtype, [&](auto to) {
        constexpr int kCount = decltype(count)::value;
        const Shape shape = ShapeFor(out.rows, out.cols / kCount);
        simt::Launch(BroadcastRow<decltype(in), decltype(to), kCount>, shape.grid, shape.block, 0,
                     stream, row, out);
      });
    });
  });
}

void RopeKernel(Matrix x, const int32_t* positions, const float* cos, const float* sin,
                int head_dim, CudaStream stream) {
  if (x.rows == 0 || x.cols == 0) return;
  const ConstMatrix angles = {cos, DType::kF32, 2, head_dim / 2, head_dim / 2};
  const ConstMatrix more = {sin, DType::kF32, 2, head_dim / 2, head_dim / 2};
  WithPack(RowsAreAligned(x, angles, more), [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const Shape shape = ShapeFor(x.rows, x.cols / 2 / kCount);
    simt::Launch(Rope<kCount>, shape.grid, shape.block, 0, stream, x, positions, cos, sin,
                 head_dim);
  });
}

void SwiGluKernel(ConstMatrix gate, ConstMatrix up, Matrix out, CudaStream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  WithPack(RowsAreAligned(gate, up, out), [&](auto count) {
    WithElement(out.dtype, [&](auto to) {
      constexpr int kCount = decltype(count)::value;
      const Shape shape = ShapeFor(out.rows, out.cols / kCount);
      simt::Launch(SwiGlu<decltype(to), kCount>, shape.grid, shape.block, 0, stream, gate, up, out);
    });
  });
}

void AddKernel(Matrix x, ConstMatrix y, CudaStream stream) {
  if (x.rows == 0 || x.cols == 0) return;
  WithPack(RowsAreAligned(x, y), [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const Shape shape = ShapeFor(x.rows, x.cols / kCount);
    simt::Launch(Add<kCount>, shape.grid, shape.block, 0, stream, x, y);
  });
}

}  // namespace skein::engine
