// The inner loops of CpuOps, compiled once for each ISA: what the rest of the folder calls, without
// knowing which. A kernel runs on one thread, allocates nothing and checks nothing; sharing out
// work and checking shapes is CpuOps' part.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/tensor.h"
#include "engine/ops/cpu/cpu_isa.h"

namespace skein::engine {

// Element-wise work on rows of n elements. Buffers are contiguous.
struct RowKernels {
  void (*convert)(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t n);
  void (*rms_norm)(const float* x, const void* weight, DType weight_dtype, float eps, void* out,
                   DType out_dtype, int64_t n);
  // One head of 2 * half elements; cos and sin of its position, [half].
  void (*rope)(float* head, const float* cos, const float* sin, int64_t half);
  void (*swiglu)(const float* gate, const float* up, void* out, DType out_dtype, int64_t n);
  void (*add)(float* x, const float* y, int64_t n);
  // a = share_a * a + share_b * b.
  void (*mix)(float* a, float share_a, const float* b, float share_b, int64_t n);
};

// Skinny GEMM, out = x · wᵀ + bias with few rows of x: reads w once, in memory order.
struct StreamProduct {
  const void* x = nullptr;  // [rows, k]: bf16 when `bf16_pairs`, else f32
  int64_t x_stride = 0;
  bool bf16_pairs = false;  // multiply bf16 pairs as they are; REQUIRES has_bf16_pairs, w in bf16
  int rows = 0;
  ConstMatrix w;                // [n, k]
  const float* bias = nullptr;  // [n] or null
  Matrix out;                   // [rows, n]
};

inline constexpr int kProductPartsMax = 8;

// Where the summed dimension of a product is cut: part i is [at[i], at[i + 1]), at[0] = 0. Each
// part is summed by itself, then the parts' sums are added in pairs.
struct ProductCuts {
  int parts = 1;  // a power of two, at most kProductPartsMax
  int64_t at[kProductPartsMax + 1] = {};
};

// The same product in an order of its own, alike for any number of rows (column_sums.h says which).
struct ColumnProduct {
  ConstMatrix x;                // [rows, k]
  bool bf16_pairs = false;      // x and w are bf16, multiplied in pairs; REQUIRES has_bf16_pairs
  ConstMatrix w;                // [n, k]
  const float* bias = nullptr;  // [n] or null
  Matrix out;                   // [rows, n]
  ProductCuts cuts;             // of k
  int tile_rows = 0;            // rows that meet w together
  const std::byte* packed = nullptr;  // PackedBytes: x, as `pack` left it
};

// Panels of w that meet a tile of rows before the next tile does, and the room for them in L2.
inline constexpr int64_t kStripPanels = 8;
inline constexpr int64_t kPanelsBytesL2 = 512 << 10;

// Rows of x, or columns of w, as they are packed: every part of k is padded to whole quads.
constexpr int64_t PackedRowBytes(const ColumnProduct& p) {
  const int64_t depth = p.x.cols + 8 * kProductPartsMax;
  return depth * static_cast<int64_t>(p.bf16_pairs ? sizeof(BF16) : sizeof(float));
}
constexpr size_t PackedBytes(const ColumnProduct& p) {
  return static_cast<size_t>(p.x.rows * PackedRowBytes(p));
}
// At least one panel, of at most 8 columns.
constexpr size_t ColumnScratchBytes(const ColumnProduct& p) {
  const int64_t panel = 8 * PackedRowBytes(p);
  return static_cast<size_t>(panel > kPanelsBytesL2 ? panel : kPanelsBytesL2);
}

struct ColumnKernels {
  // tile_rows of a product: at most so many for `multiply`, and for `stream`.
  int multiply_rows = 0;
  int stream_rows = 0;
  // Packs rows [tile * tile_rows, …) of x, of any dtype, to `packed`.
  void (*pack)(const ColumnProduct& p, int tile, std::byte* packed) = nullptr;
  // Columns [begin, end) of out; reads w once for each tile. For few rows.
  void (*stream)(const ColumnProduct& p, int64_t begin, int64_t end) = nullptr;
  // The same, but packs w first. `scratch`: ColumnScratchBytes, aligned to 64.
  void (*multiply)(const ColumnProduct& p, int64_t begin, int64_t end,
                   std::byte* scratch) = nullptr;
};

// Attention of some query rows of one sequence over a range of its keys, for one KV head and the
// `group` query heads that share it.
struct AttentionUnit {
  // Query row (t, g) is at q + t * q_stride + g * head_dim; `out` alike.
  const float* q = nullptr;
  int64_t q_stride = 0;
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  float* lse = nullptr;  // of (t, g) at lse + t * lse_stride + g; null when not wanted
  int64_t lse_stride = 0;

  int tokens = 0;
  int group = 0;
  int head_dim = 0;
  float scale = 1.0f;
  int64_t position = 0;  // of token 0; token t sees keys 0 … position + t (of those in the range)
  int64_t key_begin = 0;  // the range of keys this unit looks at
  int64_t key_end = 0;
  bool exact_rows = false;  // a row gets the same bits beside any number of others

  // The key at position p is at keys + (table[p / block_tokens] * block_stride + p % block_tokens *
  // head_dim) elements; values alike.
  const void* keys = nullptr;
  const void* values = nullptr;
  DType kv_dtype = DType::kF32;
  const int32_t* block_table = nullptr;
  int64_t block_tokens = 0;
  int64_t block_stride = 0;
};

struct Kernels {
  RowKernels rows;
  bool has_bf16_pairs = false;
  // Columns [begin, end) of p.out.
  void (*stream)(const StreamProduct& p, int64_t begin, int64_t end) = nullptr;
  ColumnKernels columns;
  // `scratch`: AttentionScratchBytes(tokens * group, head_dim), aligned to 64. A row that sees no
  // key of the range gets zeros and an lse of -inf.
  void (*attend)(const AttentionUnit& unit, std::byte* scratch) = nullptr;
};

inline constexpr int kAttentionChunkKeys = 128;
inline constexpr int kAttentionPadding = 32;  // of head_dim and keys: two registers of any ISA

constexpr size_t AttentionScratchBytes(int64_t rows, int64_t head_dim) {
  const int64_t dim = (head_dim + kAttentionPadding - 1) / kAttentionPadding * kAttentionPadding;
  const int64_t keys = kAttentionChunkKeys;
  // Queries and sums; scores and weights; packed keys and values; running max and total; zeros.
  const int64_t floats =
      2 * rows * dim + 2 * rows * keys + 2 * keys * dim + 2 * (rows + kAttentionPadding) + dim;
  return static_cast<size_t>(floats) * sizeof(float) + 1024;
}

// REQUIRES: IsSupported(isa), and not kAuto.
Kernels KernelsFor(CpuIsa isa);

}  // namespace skein::engine
