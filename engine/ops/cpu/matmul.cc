#include "engine/ops/cpu/matmul.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/ops/ops.h"

namespace skein::engine {
namespace {

// Columns a thread takes are a multiple of this, and of a panel of widened weights.
constexpr int64_t kColumnGrain = 64;
constexpr int64_t kWidenedPanel = 128;
// A product smaller than this (bytes of w) is not worth waking a thread for.
constexpr int64_t kSharedBytesMin = 64 << 10;

// Rows of a reproducible product are packed this many at most at a time, and not more bytes than
// this, so that they come from L2 or at worst from L3.
constexpr int64_t kPackedRowsMax = 512;
constexpr int64_t kPackedBytesMax = 8 << 20;

// Where a reproducible product is cut: where no group slices it, nowhere. A group's slices are cut
// where the whole matrix is, at eighths, so that the slices of 2, 4 or 8 ranks are whole subtrees
// of its sums.
ProductCuts CutsOf(int64_t k, const ColumnSlice& slice) {
  ProductCuts cuts;
  cuts.at[1] = k;
  if (slice.columns == 0) return cuts;
  const auto cut = [&](int i) { return slice.columns * i / kProductPartsMax - slice.begin; };
  for (int parts = kProductPartsMax; parts >= 1; parts /= 2) {
    for (int first = 0; first < kProductPartsMax; first += parts) {
      if (cut(first) != 0 || cut(first + parts) != k) continue;
      cuts.parts = parts;
      for (int i = 0; i <= parts; ++i) cuts.at[i] = cut(first + i);
      return cuts;
    }
  }
  return cuts;  // of a group that has no cuts in common with others
}

const void* At(const ConstMatrix& m, int64_t row) {
  return static_cast<const std::byte*>(m.data) +
         row * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
}

Matrix RowsOf(const Matrix& m, int64_t begin, int64_t end) {
  const int64_t bytes = begin * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
  return {static_cast<std::byte*>(m.data) + bytes, m.dtype, end - begin, m.cols, m.stride};
}

void* ColumnOf(const Matrix& m, int64_t column) {
  return static_cast<std::byte*>(m.data) + column * static_cast<int64_t>(BytesOf(m.dtype));
}

// Contiguous columns [begin, end) of one of `shares` shares, cut at multiples of kColumnGrain.
struct ColumnShare {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t width() const { return end - begin; }
};

ColumnShare ShareOf(int64_t columns, int64_t share, int64_t shares) {
  const int64_t grains = (columns + kColumnGrain - 1) / kColumnGrain;
  return {std::min(columns, grains * share / shares * kColumnGrain),
          std::min(columns, grains * (share + 1) / shares * kColumnGrain)};
}

// How many threads a product by w deserves.
int64_t SharesFor(const ConstMatrix& w, int threads) {
  const int64_t bytes = w.rows * w.cols * static_cast<int64_t>(BytesOf(w.dtype));
  const int64_t grains = (w.rows + kColumnGrain - 1) / kColumnGrain;
  return bytes < kSharedBytesMin ? 1 : std::min<int64_t>(grains, threads);
}

// Calls body(share index, columns) for every share, each on its own thread.
template <typename Body>
void ForEachShare(ThreadPool* pool, int64_t columns, int64_t shares, const Body& body) {
  if (shares == 1) return body(size_t{0}, ColumnShare{0, columns});
  pool->RunOnEach([&](int thread) {
    if (thread < shares) body(static_cast<size_t>(thread), ShareOf(columns, thread, shares));
  });
}

}  // namespace

struct MatMulRunner::WidenedShare {
  ColumnShare columns;
  // The product of a whole panel, and that of the rest at the end of the share; null if there is
  // none.
  std::shared_ptr<const OneDnnGemm::Product> whole, rest;
  size_t scratch_bytes = 0;
};

MatMulRunner::MatMulRunner(const Kernels* kernels, ThreadPool* pool, bool reproducible)
    : kernels_(kernels),
      pool_(pool),
      reproducible_(reproducible),
      thread_scratch_(static_cast<size_t>(pool->threads())) {}

void MatMulRunner::Run(const ConstMatrix& x, const ConstMatrix& w, const ConstVector& bias,
                       const ColumnSlice& slice, const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const float* bias_f32 = nullptr;
  if (!bias.empty()) {
    bias_f32 = bias_scratch_.GetArray<float>(bias.cols);
    kernels_->rows.convert(bias.data, bias.dtype, const_cast<float*>(bias_f32), DType::kF32,
                           bias.cols);
  }
  if (reproducible_) return RunColumns(x, w, bias_f32, CutsOf(x.cols, slice), out);
  const bool pairs = kernels_->has_bf16_pairs && x.dtype == DType::kBF16;
  const bool as_they_are = x.dtype == w.dtype && (pairs || x.dtype == DType::kF32);
  if (x.rows <= kSkinnyRowsMax || x.cols == 0) {
    RunStreamed(ProductOf(x, w, bias_f32, out));
  } else if (as_they_are) {
    RunGemm(x, w, bias_f32, out);
  } else {
    RunWidened(x, w, bias_f32, out);
  }
}

StreamProduct MatMulRunner::ProductOf(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                                      const Matrix& out) {
  const bool pairs = kernels_->has_bf16_pairs && x.dtype == DType::kBF16;
  const ConstMatrix rows = pairs ? x : InF32(x);
  return {rows.data, rows.stride, pairs, static_cast<int>(rows.rows), w, bias, out};
}

void MatMulRunner::RunStreamed(const StreamProduct& product) {
  const ConstMatrix& w = product.w;
  ForEachShare(pool_, w.rows, SharesFor(w, pool_->threads()), [&](size_t, ColumnShare columns) {
    kernels_->stream(product, columns.begin, columns.end);
  });
}

void MatMulRunner::RunColumns(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                              const ProductCuts& cuts, const Matrix& out) {
  ColumnProduct product{x, false, w, bias, out, cuts, nullptr};
  product.bf16_pairs =
      kernels_->has_bf16_pairs && x.dtype == DType::kBF16 && w.dtype == DType::kBF16;
  if (x.rows <= kStreamedRowsMax) {
    if (!product.bf16_pairs) product.x = InF32(x);
    ForEachShare(pool_, w.rows, SharesFor(w, pool_->threads()), [&](size_t, ColumnShare columns) {
      kernels_->columns.stream(product, columns.begin, columns.end);
    });
    return;
  }
  const int64_t tile = kernels_->columns.tile_rows;
  const int64_t row_bytes = std::max<int64_t>(1, x.cols * (product.bf16_pairs ? 2 : 4));
  const int64_t most =
      std::clamp(kPackedBytesMax / row_bytes / tile * tile, tile, kPackedRowsMax / tile * tile);
  // Blocks of equal size, not a large one and a remainder.
  const int64_t blocks = (x.rows + most - 1) / most;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = x.rows * i / blocks, end = x.rows * (i + 1) / blocks;
    product.x = {At(x, begin), x.dtype, end - begin, x.cols, x.stride};
    product.out = RowsOf(out, begin, end);
    RunColumnBlock(product);
  }
}

void MatMulRunner::RunColumnBlock(ColumnProduct product) {
  const ConstMatrix &x = product.x, &w = product.w;
  std::byte* packed = packed_scratch_.Get(PackedBytes(product));
  const int64_t tile_rows = TileRows(x.rows, kernels_->columns.tile_rows);
  const int64_t grain = (16 << 10) / std::max<int64_t>(1, x.cols * tile_rows);
  pool_->ParallelFor((x.rows + tile_rows - 1) / tile_rows, std::max<int64_t>(1, grain),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t tile = begin; tile < end; ++tile) {
                         kernels_->columns.pack(product, static_cast<int>(tile), packed);
                       }
                     });
  product.packed = packed;
  ForEachShare(pool_, w.rows, SharesFor(w, pool_->threads()), [&](size_t i, ColumnShare columns) {
    kernels_->columns.multiply(product, columns.begin, columns.end,
                               thread_scratch_[i].Get(ColumnScratchBytes(product)));
  });
}

ConstMatrix MatMulRunner::InF32(const ConstMatrix& x) {
  if (x.dtype == DType::kF32) return x;
  float* to = x_scratch_.GetArray<float>(x.rows * x.cols);
  pool_->ParallelFor(x.rows, std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, x.cols)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t r = begin; r < end; ++r) {
                         kernels_->rows.convert(At(x, r), x.dtype, to + r * x.cols, DType::kF32,
                                                x.cols);
                       }
                     });
  return {to, DType::kF32, x.rows, x.cols, x.cols};
}

void MatMulRunner::RunGemm(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                           const Matrix& out) {
  const int64_t shares = SharesFor(w, pool_->threads());
  std::vector<std::shared_ptr<const OneDnnGemm::Product>> products;
  for (int64_t i = 0; i < shares; ++i) {
    products.push_back(gemm_.Prepare({x.rows, ShareOf(w.rows, i, shares).width(), x.cols, x.stride,
                                      w.stride, out.stride, x.dtype, out.dtype, bias != nullptr}));
  }
  ForEachShare(pool_, w.rows, shares, [&](size_t i, ColumnShare columns) {
    const OneDnnGemm::Product& product = *products[i];
    gemm_.Run(product, x.data, At(w, columns.begin),
              bias == nullptr ? nullptr : bias + columns.begin, ColumnOf(out, columns.begin),
              thread_scratch_[i].Get(OneDnnGemm::ScratchBytes(product)));
  });
}

void MatMulRunner::RunWidened(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                              const Matrix& out) {
  const ConstMatrix rows = InF32(x);
  const int64_t shares = SharesFor(w, pool_->threads());
  std::vector<WidenedShare> plans;
  for (int64_t i = 0; i < shares; ++i) {
    WidenedShare plan{ShareOf(w.rows, i, shares), nullptr, nullptr, 0};
    const auto prepare = [&](int64_t columns) {
      auto product = gemm_.Prepare({rows.rows, columns, rows.cols, rows.stride, rows.cols,
                                    kWidenedPanel, DType::kF32, DType::kF32, bias != nullptr});
      plan.scratch_bytes = std::max(plan.scratch_bytes, OneDnnGemm::ScratchBytes(*product));
      return product;
    };
    if (plan.columns.width() >= kWidenedPanel) plan.whole = prepare(kWidenedPanel);
    const int64_t rest = plan.columns.width() % kWidenedPanel;
    if (rest > 0) plan.rest = prepare(rest);
    plans.push_back(std::move(plan));
  }
  ForEachShare(pool_, w.rows, shares, [&](size_t i, ColumnShare) {
    RunWidenedShare(rows, w, bias, out, plans[i], &thread_scratch_[i]);
  });
}

void MatMulRunner::RunWidenedShare(const ConstMatrix& x, const ConstMatrix& w, const float* bias,
                                   const Matrix& out, const WidenedShare& plan,
                                   Scratch* scratch) const {
  // Widened weights, the panel's results, and oneDNN's own scratch.
  float* weights = scratch->GetArray<float>(
      kWidenedPanel * (x.cols + x.rows) + static_cast<int64_t>(plan.scratch_bytes / sizeof(float)));
  float* results = weights + kWidenedPanel * x.cols;
  void* gemm_scratch = results + kWidenedPanel * x.rows;
  for (int64_t begin = plan.columns.begin; begin < plan.columns.end; begin += kWidenedPanel) {
    const int64_t width = std::min(kWidenedPanel, plan.columns.end - begin);
    for (int64_t c = 0; c < width; ++c) {
      kernels_->rows.convert(At(w, begin + c), w.dtype, weights + c * w.cols, DType::kF32, w.cols);
    }
    gemm_.Run(width == kWidenedPanel ? *plan.whole : *plan.rest, x.data, weights,
              bias == nullptr ? nullptr : bias + begin, results, gemm_scratch);
    for (int64_t r = 0; r < x.rows; ++r) {
      const int64_t element = r * out.stride + begin;
      kernels_->rows.convert(
          results + r * kWidenedPanel, DType::kF32,
          static_cast<std::byte*>(out.data) + element * static_cast<int64_t>(BytesOf(out.dtype)),
          out.dtype, width);
    }
  }
}

}  // namespace skein::engine
