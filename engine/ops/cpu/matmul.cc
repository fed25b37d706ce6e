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
// Up to so many rows, weights are turned for each tile of rows, not packed once for all.
constexpr int64_t kStreamedRowsMax = 32;

// Where a reproducible product is cut. One that no group slices is not cut. A group's slices are
// cut at eighths of the whole matrix, so that the slices of 2, 4 or 8 ranks are whole subtrees of
// its sums.
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

// One of `shares` shares of a product's columns, cut at multiples of kColumnGrain.
ColumnShare ShareOf(int64_t columns, int64_t share, int64_t shares) {
  const int64_t grains = (columns + kColumnGrain - 1) / kColumnGrain;
  return {std::min(columns, grains * share / shares * kColumnGrain),
          std::min(columns, grains * (share + 1) / shares * kColumnGrain)};
}

int64_t WeightBytes(const ConstMatrix& m) {
  return m.rows * m.cols * static_cast<int64_t>(BytesOf(m.dtype));
}

// How many threads a product by w deserves.
int64_t SharesFor(const ConstMatrix& w, int threads) {
  const int64_t grains = (w.rows + kColumnGrain - 1) / kColumnGrain;
  return WeightBytes(w) < kSharedBytesMin ? 1 : std::min<int64_t>(grains, threads);
}

// A product's columns that one thread computes.
struct Share {
  size_t product = 0;
  int64_t index = 0;  // of SharesFor
  ColumnShare columns;
};

// Calls body(thread, share) for every share of the products, on one thread each; the first shares
// of a product are those of the threads behind the last share of the product before. How a product
// is cut does not depend on the others.
template <typename Body>
void ForEachShare(ThreadPool* pool, std::span<const Product> products, const Body& body) {
  int64_t bytes = 0, total = 0;
  for (const Product& p : products) {
    bytes += WeightBytes(p.w);
    total += SharesFor(p.w, pool->threads());
  }
  const bool alone = bytes < kSharedBytesMin || total == 1;
  const int threads = alone ? 1 : pool->threads();
  const auto run = [&](int thread) {
    int64_t first = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      const int64_t shares = SharesFor(products[i].w, threads);
      const int64_t index = (thread + threads - first % threads) % threads;
      if (index < shares) {
        body(static_cast<size_t>(thread),
             Share{i, index, ShareOf(products[i].w.rows, index, shares)});
      }
      first += shares;
    }
  };
  if (alone) return run(0);
  pool->RunOnEach(run);
}

// Calls body(begin, end) for [0, count) in the fewest ranges of at most `most`, of about one size.
template <typename Body>
void ForEachOfAlike(int64_t count, int64_t most, const Body& body) {
  const int64_t ranges = (count + most - 1) / most;
  for (int64_t i = 0; i < ranges; ++i) body(count * i / ranges, count * (i + 1) / ranges);
}

// Whether b may be made in one call of RunAlike with a.
bool MadeAlike(const Product& a, const Product& b) {
  return b.w.rows > 0 && a.w.dtype == b.w.dtype && a.slice.columns == b.slice.columns &&
         a.slice.begin == b.slice.begin;
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

void MatMulRunner::Run(const ConstMatrix& x, std::span<const Product> products) {
  while (!products.empty() && x.rows > 0) {
    size_t alike = 1;
    if (products[0].w.rows > 0) {
      while (alike < products.size() && MadeAlike(products[0], products[alike])) ++alike;
      RunAlike(x, products.first(alike));
    }
    products = products.subspan(alike);
  }
}

void MatMulRunner::RunAlike(const ConstMatrix& x, std::span<const Product> products) {
  WidenBiases(products);
  if (reproducible_) return RunColumns(x, products);
  const bool pairs = kernels_->has_bf16_pairs && x.dtype == DType::kBF16;
  const bool as_they_are = x.dtype == products[0].w.dtype && (pairs || x.dtype == DType::kF32);
  if (x.rows <= kSkinnyRowsMax || x.cols == 0) {
    RunStreamed(x, products);
  } else if (as_they_are) {
    RunGemm(x, products);
  } else {
    RunWidened(x, products);
  }
}

void MatMulRunner::WidenBiases(std::span<const Product> products) {
  int64_t columns = 0;
  for (const Product& p : products) columns += p.bias.empty() ? 0 : p.bias.cols;
  float* to = bias_scratch_.GetArray<float>(columns);
  biases_.clear();
  for (const Product& p : products) {
    biases_.push_back(p.bias.empty() ? nullptr : to);
    if (p.bias.empty()) continue;
    kernels_->rows.convert(p.bias.data, p.bias.dtype, to, DType::kF32, p.bias.cols);
    to += p.bias.cols;
  }
}

void MatMulRunner::RunStreamed(const ConstMatrix& x, std::span<const Product> products) {
  const bool pairs = kernels_->has_bf16_pairs && x.dtype == DType::kBF16;
  const ConstMatrix rows = pairs ? x : InF32(x);
  ForEachShare(pool_, products, [&](size_t, const Share& share) {
    const Product& p = products[share.product];
    const StreamProduct product{
        rows.data, rows.stride, pairs, static_cast<int>(rows.rows), p.w, biases_[share.product],
        p.out};
    kernels_->stream(product, share.columns.begin, share.columns.end);
  });
}

void MatMulRunner::RunColumns(const ConstMatrix& x, std::span<const Product> products) {
  std::vector<ColumnProduct> columns;
  const ProductCuts cuts = CutsOf(x.cols, products[0].slice);
  const bool pairs =
      kernels_->has_bf16_pairs && x.dtype == DType::kBF16 && products[0].w.dtype == DType::kBF16;
  for (size_t i = 0; i < products.size(); ++i) {
    columns.push_back({x, pairs, products[i].w, biases_[i], products[i].out, cuts, 0, nullptr});
  }
  const int64_t most = std::clamp(kPackedBytesMax / PackedRowBytes(columns[0]),
                                  int64_t{kernels_->columns.multiply_rows}, kPackedRowsMax);
  ForEachOfAlike(x.rows, most, [&](int64_t begin, int64_t end) {
    for (size_t p = 0; p < products.size(); ++p) {
      columns[p].x = {At(x, begin), x.dtype, end - begin, x.cols, x.stride};
      columns[p].out = RowsOf(products[p].out, begin, end);
    }
    RunColumnBlock(products, columns);
  });
}

void MatMulRunner::RunColumnBlock(std::span<const Product> products,
                                  std::span<ColumnProduct> columns) {
  const ConstMatrix& x = columns[0].x;
  const bool streamed = x.rows <= kStreamedRowsMax;
  const int64_t tile_rows_max =
      streamed ? kernels_->columns.stream_rows : kernels_->columns.multiply_rows;
  const int64_t tiles = (x.rows + tile_rows_max - 1) / tile_rows_max;
  const int64_t tile_rows = (x.rows + tiles - 1) / tiles;
  std::byte* packed = packed_scratch_.Get(PackedBytes(columns[0]));
  for (ColumnProduct& product : columns) {
    product.tile_rows = static_cast<int>(tile_rows);
    product.packed = packed;
  }
  const int64_t grain = (16 << 10) / std::max<int64_t>(1, x.cols * tile_rows);
  pool_->ParallelFor((x.rows + tile_rows - 1) / tile_rows, std::max<int64_t>(1, grain),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t tile = begin; tile < end; ++tile) {
                         kernels_->columns.pack(columns[0], static_cast<int>(tile), packed);
                       }
                     });
  ForEachShare(pool_, products, [&](size_t thread, const Share& share) {
    const ColumnProduct& product = columns[share.product];
    if (streamed) {
      return kernels_->columns.stream(product, share.columns.begin, share.columns.end);
    }
    kernels_->columns.multiply(product, share.columns.begin, share.columns.end,
                               thread_scratch_[thread].Get(ColumnScratchBytes(product)));
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

void MatMulRunner::RunGemm(const ConstMatrix& x, std::span<const Product> products) {
  std::vector<std::vector<std::shared_ptr<const OneDnnGemm::Product>>> prepared;
  for (const Product& p : products) {
    auto& shares = prepared.emplace_back();
    const int64_t count = SharesFor(p.w, pool_->threads());
    for (int64_t i = 0; i < count; ++i) {
      shares.push_back(
          gemm_.Prepare({x.rows, ShareOf(p.w.rows, i, count).width(), x.cols, x.stride, p.w.stride,
                         p.out.stride, x.dtype, p.out.dtype, !p.bias.empty()}));
    }
  }
  ForEachShare(pool_, products, [&](size_t thread, const Share& share) {
    const Product& p = products[share.product];
    const float* bias = biases_[share.product];
    const auto& product = *prepared[share.product][static_cast<size_t>(share.index)];
    gemm_.Run(product, x.data, At(p.w, share.columns.begin),
              bias == nullptr ? nullptr : bias + share.columns.begin,
              ColumnOf(p.out, share.columns.begin),
              thread_scratch_[thread].Get(OneDnnGemm::ScratchBytes(product)));
  });
}

void MatMulRunner::RunWidened(const ConstMatrix& x, std::span<const Product> products) {
  const ConstMatrix rows = InF32(x);
  std::vector<std::vector<WidenedShare>> plans;
  for (const Product& p : products) {
    auto& shares = plans.emplace_back();
    const int64_t count = SharesFor(p.w, pool_->threads());
    for (int64_t i = 0; i < count; ++i) {
      shares.push_back(PrepareWidened(rows, ShareOf(p.w.rows, i, count), !p.bias.empty()));
    }
  }
  ForEachShare(pool_, products, [&](size_t thread, const Share& share) {
    RunWidenedShare(rows, products[share.product], biases_[share.product],
                    plans[share.product][static_cast<size_t>(share.index)],
                    &thread_scratch_[thread]);
  });
}

MatMulRunner::WidenedShare MatMulRunner::PrepareWidened(const ConstMatrix& rows,
                                                        const ColumnShare& columns, bool bias) {
  WidenedShare plan{columns, nullptr, nullptr, 0};
  const auto prepare = [&](int64_t width) {
    auto product = gemm_.Prepare({rows.rows, width, rows.cols, rows.stride, rows.cols,
                                  kWidenedPanel, DType::kF32, DType::kF32, bias});
    plan.scratch_bytes = std::max(plan.scratch_bytes, OneDnnGemm::ScratchBytes(*product));
    return product;
  };
  if (columns.width() >= kWidenedPanel) plan.whole = prepare(kWidenedPanel);
  const int64_t rest = columns.width() % kWidenedPanel;
  if (rest > 0) plan.rest = prepare(rest);
  return plan;
}

void MatMulRunner::RunWidenedShare(const ConstMatrix& x, const Product& product, const float* bias,
                                   const WidenedShare& plan, Scratch* scratch) const {
  const ConstMatrix& w = product.w;
  const Matrix& out = product.out;
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
