// CpuOps that are reproducible: a row's bits depend on what the row and its keys are, never on the
// rows, slices and calls around it. docs/reproducibility.md says how.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/f16.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

struct Params {
  CpuIsa isa;
  DType dtype;
};

class Values {
 public:
  Values(int64_t rows, int64_t cols, DType dtype)
      : rows_(rows),
        cols_(cols),
        dtype_(dtype),
        bytes_(static_cast<size_t>(rows * cols) * BytesOf(dtype) + 8) {}
  void Fill(std::mt19937* random) {
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      const float value = static_cast<float>((*random)() % 4001) / 1000.0f - 2.0f;
      if (dtype_ == DType::kF32) {
        reinterpret_cast<float*>(data())[i] = value;
      } else {
        reinterpret_cast<BF16*>(data())[i] = ToBF16(value);
      }
    }
  }
  std::byte* data() { return bytes_.data(); }
  float At(int64_t row, int64_t col) {
    const int64_t i = row * cols_ + col;
    return dtype_ == DType::kF32 ? reinterpret_cast<float*>(data())[i]
                                 : ToFloat(reinterpret_cast<BF16*>(data())[i]);
  }
  Matrix view() { return {data(), dtype_, rows_, cols_, cols_}; }
  // Rows [first, first + rows), columns [column, column + cols).
  Matrix Part(int64_t first, int64_t rows, int64_t column, int64_t cols) {
    return {data() + static_cast<size_t>(first * cols_ + column) * BytesOf(dtype_), dtype_, rows,
            cols, cols_};
  }
  std::string Row(int64_t row) {
    const size_t bytes = static_cast<size_t>(cols_) * BytesOf(dtype_);
    return {reinterpret_cast<const char*>(data()) + static_cast<size_t>(row) * bytes, bytes};
  }

 private:
  int64_t rows_, cols_;
  DType dtype_;
  std::vector<std::byte> bytes_;
};

class Reproducible : public testing::TestWithParam<Params> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam().isa)) GTEST_SKIP() << "not on this CPU";
    ops_ = MakeCpuOps({.threads = 2, .isa = GetParam().isa, .reproducible = true}).value();
  }
  void MultiplySlice(ConstMatrix x, ConstMatrix w, ConstVector bias, const ColumnSlice& slice,
                     Matrix out) {
    const Product product = {w, bias, slice, out};
    ops_->MatMuls(x, {&product, 1});
  }

  std::unique_ptr<Ops> ops_;
  std::mt19937 random_{20261123};
};

// Every number of rows goes its own way: a lone one, some, blocks of many.
TEST_P(Reproducible, ProductsOfAnyNumberOfRows) {
  constexpr int64_t kRows = 310, kColumns = 150;
  for (const int64_t k : {40, 515, 1030, 5633}) {
    for (const bool sliced : {false, true}) {
      SCOPED_TRACE(testing::Message() << k << (sliced ? " cut for groups" : ""));
      Values x(kRows, k, GetParam().dtype), w(kColumns, k, GetParam().dtype);
      Values bias(1, kColumns, GetParam().dtype), all(kRows, kColumns, DType::kF32);
      x.Fill(&random_);
      w.Fill(&random_);
      bias.Fill(&random_);
      const ColumnSlice slice{sliced ? k : 0, 0};
      MultiplySlice(x.view(), w.view(), bias.view(), slice, all.view());
      for (const int64_t m : {1, 2, 3, 4, 5, 7, 11, 12, 13, 16, 25, 63, 64, 65, 144, 289}) {
        Values some(m, kColumns, DType::kF32);
        const auto first = static_cast<int64_t>(random_() % static_cast<uint32_t>(kRows - m + 1));
        MultiplySlice(x.Part(first, m, 0, k), w.view(), bias.view(), slice, some.view());
        for (int64_t r = 0; r < m; ++r) {
          ASSERT_TRUE(some.Row(r) == all.Row(first + r)) << "row " << r << " of " << m;
        }
      }
    }
  }
}

// An element is one chain along each part of k, whatever instructions compute it.
TEST_P(Reproducible, ProductsAreChains) {
  if (GetParam().isa == CpuIsa::kPortable || GetParam().isa == CpuIsa::kAvx512Bf16) {
    GTEST_SKIP() << "no fused multiply-add, or one of pairs";
  }
  constexpr int64_t kColumns = 75, kDepth = 1430;
  for (const int64_t m : {1, 4, 5, 30, 70}) {
    Values x(m, kDepth, GetParam().dtype), w(kColumns, kDepth, GetParam().dtype);
    Values whole(m, kColumns, DType::kF32), cut(m, kColumns, DType::kF32);
    x.Fill(&random_);
    w.Fill(&random_);
    ops_->MatMul(x.view(), w.view(), {}, whole.view());
    MultiplySlice(x.view(), w.view(), {}, {kDepth, 0}, cut.view());
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        const auto chain = [&](int64_t begin, int64_t end) {
          float sum = 0.0f;
          for (int64_t i = begin; i < end; ++i) sum = std::fma(x.At(r, i), w.At(c, i), sum);
          return sum;
        };
        ASSERT_EQ(whole.At(r, c), chain(0, kDepth)) << r << ", " << c;
        float parts[8];
        for (int i = 0; i < 8; ++i) parts[i] = chain(kDepth * i / 8, kDepth * (i + 1) / 8);
        ASSERT_EQ(cut.At(r, c), ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
                                    ((parts[4] + parts[5]) + (parts[6] + parts[7])))
            << r << ", " << c;
      }
    }
  }
}

// A rank's columns of the output are those of the whole product, wherever its share begins.
TEST_P(Reproducible, ProductsOfAnyColumns) {
  constexpr int64_t kColumns = 203, kDepth = 1500;
  for (const int64_t m : {1, 5, 40}) {
    Values x(m, kDepth, GetParam().dtype), w(kColumns, kDepth, GetParam().dtype);
    Values all(m, kColumns, DType::kF32);
    x.Fill(&random_);
    w.Fill(&random_);
    ops_->MatMul(x.view(), w.view(), {}, all.view());
    for (const int ranks : {2, 3, 8}) {
      Values parts(m, kColumns, DType::kF32);
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t begin = kColumns * rank / ranks, end = kColumns * (rank + 1) / ranks;
        ops_->MatMul(x.view(), w.Part(begin, end - begin, 0, kDepth), {},
                     parts.Part(0, m, begin, end - begin));
      }
      for (int64_t r = 0; r < m; ++r) ASSERT_TRUE(parts.Row(r) == all.Row(r)) << ranks << " ranks";
    }
  }
}

// Neither does a product know the others of its call.
TEST_P(Reproducible, ProductsOfOneCall) {
  constexpr int64_t kDepth = 1500;
  for (const int64_t m : {1, 5, 17, 40, 200}) {
    Values x(m, kDepth, GetParam().dtype), together(m, 203, DType::kF32), alone = together;
    x.Fill(&random_);
    std::vector<Values> weights;
    std::vector<Product> products;
    weights.reserve(3);
    int64_t first = 0;
    for (const int64_t width : {130, 70, 3}) {
      Values& w = weights.emplace_back(width, kDepth, GetParam().dtype);
      w.Fill(&random_);
      products.push_back({w.view(), {}, {}, together.Part(0, m, first, width)});
      ops_->MatMul(x.view(), w.view(), {}, alone.Part(0, m, first, width));
      first += width;
    }
    ops_->MatMuls(x.view(), products);
    for (int64_t r = 0; r < m; ++r) ASSERT_TRUE(together.Row(r) == alone.Row(r)) << m << " rows";
  }
}

// Slices of the summed dimension, added in pairs as an all-reduce adds them.
TEST_P(Reproducible, ProductsSummedOverRanks) {
  constexpr int64_t kColumns = 37;
  for (const int64_t k : {56, 1000, 2816}) {
    for (const int64_t m : {1, 9, 50, 150}) {
      Values x(m, k, GetParam().dtype), w(kColumns, k, GetParam().dtype);
      Values bias(1, kColumns, GetParam().dtype), whole(m, kColumns, DType::kF32);
      x.Fill(&random_);
      w.Fill(&random_);
      bias.Fill(&random_);
      MultiplySlice(x.view(), w.view(), bias.view(), {k, 0}, whole.view());
      for (const int ranks : {2, 4, 8}) {
        SCOPED_TRACE(testing::Message() << m << " rows, depth " << k << ", " << ranks << " ranks");
        std::vector<std::vector<float>> sums;
        for (int rank = 0; rank < ranks; ++rank) {
          const int64_t begin = k * rank / ranks, end = k * (rank + 1) / ranks;
          Values part(m, kColumns, DType::kF32);
          MultiplySlice(x.Part(0, m, begin, end - begin), w.Part(0, kColumns, begin, end - begin),
                        rank == 0 ? ConstVector(bias.view()) : ConstVector{}, {k, begin},
                        part.view());
          const auto* data = reinterpret_cast<const float*>(part.data());
          sums.emplace_back(data, data + m * kColumns);
        }
        for (size_t count = sums.size(); count > 1; count /= 2) {
          for (size_t i = 0; i < count / 2; ++i) {
            for (size_t j = 0; j < sums[0].size(); ++j) {
              sums[i][j] = sums[2 * i][j] + sums[2 * i + 1][j];
            }
          }
        }
        ASSERT_EQ(std::memcmp(sums[0].data(), whole.data(), sums[0].size() * sizeof(float)), 0);
      }
    }
  }
}

// Rows of a sequence in slices at random cuts, from blocks of another layout, and segment by
// segment with a merge, against all rows in one call.
TEST_P(Reproducible, AttentionOfAnySlices) {
  constexpr int kDim = 24, kKvHeads = 2, kHeads = 6;
  constexpr int64_t kTokens = 1333;
  for (const int block_tokens : {16, 5}) {
    SCOPED_TRACE(block_tokens);
    const KvSpec spec{{.num_layers = 1,
                       .kv_heads = kKvHeads,
                       .head_dim = kDim,
                       .block_tokens = block_tokens,
                       .dtype = GetParam().dtype},
                      300};
    std::vector<std::byte> pool(static_cast<size_t>(spec.num_blocks * spec.BlockBytes()));
    const KvLayerView view{pool.data(), &spec};
    Values key(kTokens, kKvHeads * kDim, DType::kF32), value(kTokens, kKvHeads * kDim, DType::kF32);
    Values query(kTokens, kHeads * kDim, DType::kF32),
        all(kTokens, kHeads * kDim, GetParam().dtype);
    key.Fill(&random_);
    value.Fill(&random_);
    query.Fill(&random_);
    std::vector<int32_t> table(static_cast<size_t>(kTokens / block_tokens + 1));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
    const std::vector<SequenceSpan> whole = {{0, kTokens, 0, table}};
    ops_->StoreKv(key.view(), value.view(), whole, view, {});
    ops_->PagedAttention(query.view(), whole, view, 0.2f, all.view(), {});

    Values sliced(kTokens, kHeads * kDim, GetParam().dtype);
    for (int64_t begin = 0, count; begin < kTokens; begin += count) {
      const int64_t most = random_() % 3 == 0 ? 300 : 9;
      count = std::min<int64_t>(kTokens - begin, 1 + random_() % static_cast<uint64_t>(most));
      const std::vector<SequenceSpan> slice = {{0, count, begin, table}};
      ops_->PagedAttention(query.Part(begin, count, 0, kHeads * kDim), slice, view, 0.2f,
                           sliced.Part(begin, count, 0, kHeads * kDim), {});
    }
    for (int64_t r = 0; r < kTokens; ++r) ASSERT_TRUE(sliced.Row(r) == all.Row(r)) << "row " << r;

    const int64_t segment = ops_->KeySegment(block_tokens);
    ASSERT_EQ(segment % block_tokens, 0);
    const int64_t row = kTokens - 1;
    Values merged(1, kHeads * kDim, DType::kF32), lse(1, kHeads, DType::kF32);
    for (int64_t begin = 0; begin < kTokens; begin += segment) {
      Values out(1, kHeads * kDim, DType::kF32), out_lse(1, kHeads, DType::kF32);
      const std::vector<SequenceSpan> part = {
          {0, 1, 0, std::span(table).subspan(static_cast<size_t>(begin / block_tokens)), KvLayout{},
           std::min(segment, kTokens - begin)}};
      Values& into = begin == 0 ? merged : out;
      Values& into_lse = begin == 0 ? lse : out_lse;
      ops_->PagedAttention(query.Part(row, 1, 0, kHeads * kDim), part, view, 0.2f, into.view(),
                           into_lse.view());
      if (begin > 0) ops_->MergeAttention(merged.view(), lse.view(), out.view(), out_lse.view());
    }
    Values rounded(1, kHeads * kDim, GetParam().dtype);
    const std::vector<int32_t> first = {0};
    ops_->Embed(first, merged.view(), rounded.view());
    EXPECT_TRUE(rounded.Row(0) == all.Row(row));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Reproducible,
    testing::Values(Params{CpuIsa::kPortable, DType::kF32}, Params{CpuIsa::kPortable, DType::kBF16},
                    Params{CpuIsa::kAvx2, DType::kF32}, Params{CpuIsa::kAvx2, DType::kBF16},
                    Params{CpuIsa::kAvx512, DType::kF32}, Params{CpuIsa::kAvx512, DType::kBF16},
                    Params{CpuIsa::kAvx512Bf16, DType::kF32},
                    Params{CpuIsa::kAvx512Bf16, DType::kBF16}),
    [](const auto& info) {
      return std::string(NameOf(info.param.isa)) + "_" + std::string(NameOf(info.param.dtype));
    });

}  // namespace
}  // namespace skein::engine
