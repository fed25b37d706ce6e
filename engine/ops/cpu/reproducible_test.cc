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

// An element is four chains along each part of k, whatever instructions compute it. Each takes
// every fourth word of 4 bytes.
TEST_P(Reproducible, ProductsAreChains) {
  if (GetParam().isa == CpuIsa::kPortable || GetParam().isa == CpuIsa::kAvx512Bf16) {
    GTEST_SKIP() << "no fused multiply-add, or one of pairs";
  }
  constexpr int64_t kColumns = 75, kDepth = 1430;
  const int64_t per_word = GetParam().dtype == DType::kBF16 ? 2 : 1;
  for (const int64_t m : {1, 4, 9, 30, 70}) {
    Values x(m, kDepth, GetParam().dtype), w(kColumns, kDepth, GetParam().dtype);
    Values whole(m, kColumns, DType::kF32), cut(m, kColumns, DType::kF32);
    x.Fill(&random_);
    w.Fill(&random_);
    ops_->MatMul(x.view(), w.view(), {}, whole.view());
    MultiplySlice(x.view(), w.view(), {}, {kDepth, 0}, cut.view());
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        const auto chain = [&](int64_t begin, int64_t end) {
          float sums[4] = {};
          for (int64_t i = begin; i < end; ++i) {
            float& sum = sums[(i - begin) / per_word % 4];
            sum = std::fma(x.At(r, i), w.At(c, i), sum);
          }
          return (sums[0] + sums[2]) + (sums[1] + sums[3]);
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

struct HeadShape {
  int dim = 0, kv_heads = 0, heads = 0, block_tokens = 0;
};

// One sequence whose KV is stored in blocks that lie in no order.
class AttendedSequence {
 public:
  AttendedSequence(Ops* ops, const HeadShape& shape, int64_t tokens, DType dtype)
      : ops_(ops),
        spec_{{.num_layers = 1,
               .kv_heads = shape.kv_heads,
               .head_dim = shape.dim,
               .block_tokens = shape.block_tokens,
               .dtype = dtype},
              tokens / shape.block_tokens + 1},
        pool_(static_cast<size_t>(spec_.num_blocks * spec_.BlockBytes())) {
    for (int64_t i = spec_.num_blocks; i-- > 0;) table_.push_back(static_cast<int32_t>(i));
  }
  void Store(Values* key, Values* value) {
    const std::vector<SequenceSpan> all = {{0, key->view().rows, 0, table_}};
    ops_->StoreKv(key->view(), value->view(), all, {pool_.data(), &spec_}, {});
  }
  // The queries of positions [begin, begin + query.rows).
  void Attend(Matrix query, int64_t begin, Matrix out) {
    Attend(query, {0, query.rows, begin, table_}, out, {});
  }
  // One query over `keys` keys from position `begin` on, all of which it sees.
  void AttendSegment(Matrix query, int64_t begin, int64_t keys, Matrix out, Matrix lse) {
    const auto first = static_cast<size_t>(begin / spec_.block_tokens);
    Attend(query, {0, 1, 0, std::span(table_).subspan(first), KvLayout{}, keys}, out, lse);
  }

 private:
  void Attend(Matrix query, const SequenceSpan& span, Matrix out, Matrix lse) {
    ops_->PagedAttention(query, {&span, 1}, {pool_.data(), &spec_}, 0.2f, out, lse);
  }

  Ops* const ops_;
  const KvSpec spec_;
  std::vector<std::byte> pool_;
  std::vector<int32_t> table_;
};

class ReproducibleAttention : public Reproducible {
 protected:
  // Rows of a sequence in slices at random cuts against all rows in one call.
  void ExpectAnySlices(const HeadShape& shape, int64_t tokens) {
    const int64_t kv_columns = shape.kv_heads * shape.dim, columns = shape.heads * shape.dim;
    AttendedSequence sequence(ops_.get(), shape, tokens, GetParam().dtype);
    Values key(tokens, kv_columns, DType::kF32), value(tokens, kv_columns, DType::kF32);
    Values query(tokens, columns, DType::kF32), all(tokens, columns, GetParam().dtype);
    for (Values* values : {&key, &value, &query}) values->Fill(&random_);
    sequence.Store(&key, &value);
    sequence.Attend(query.view(), 0, all.view());

    Values sliced(tokens, columns, GetParam().dtype);
    for (int64_t begin = 0, count; begin < tokens; begin += count) {
      const int64_t most = random_() % 3 == 0 ? 300 : 9;
      count = std::min<int64_t>(tokens - begin, 1 + random_() % static_cast<uint64_t>(most));
      sequence.Attend(query.Part(begin, count, 0, columns), begin,
                      sliced.Part(begin, count, 0, columns));
    }
    for (int64_t r = 0; r < tokens; ++r) ASSERT_TRUE(sliced.Row(r) == all.Row(r)) << "row " << r;
    ExpectSegments(shape, &sequence, query.Part(tokens - 1, 1, 0, columns), tokens,
                   all.Row(tokens - 1));
  }

 private:
  // The last row segment by segment, with a merge.
  void ExpectSegments(const HeadShape& shape, AttendedSequence* sequence, Matrix query,
                      int64_t tokens, const std::string& expected) {
    const int64_t segment = ops_->KeySegment(shape.block_tokens);
    ASSERT_EQ(segment % shape.block_tokens, 0);
    Values merged(1, query.cols, DType::kF32), lse(1, shape.heads, DType::kF32);
    for (int64_t begin = 0; begin < tokens; begin += segment) {
      Values out(1, query.cols, DType::kF32), out_lse(1, shape.heads, DType::kF32);
      sequence->AttendSegment(query, begin, std::min(segment, tokens - begin),
                              (begin == 0 ? merged : out).view(),
                              (begin == 0 ? lse : out_lse).view());
      if (begin > 0) ops_->MergeAttention(merged.view(), lse.view(), out.view(), out_lse.view());
    }
    Values rounded(1, query.cols, GetParam().dtype);
    const std::vector<int32_t> first = {0};
    ops_->Embed(first, merged.view(), rounded.view());
    EXPECT_TRUE(rounded.Row(0) == expected);
  }
};

// Tiles of many rows pack keys and values, few rows use them where they lie.
TEST_P(ReproducibleAttention, OfAnySlices) {
  for (const HeadShape& shape : {HeadShape{24, 2, 6, 16}, HeadShape{24, 2, 6, 5},
                                 HeadShape{64, 1, 1, 16}, HeadShape{96, 2, 2, 32}}) {
    SCOPED_TRACE(testing::Message() << shape.dim << " per head, blocks of " << shape.block_tokens);
    ExpectAnySlices(shape, 1333);
  }
}

// All numbers of rows that share a KV head, and head sizes that fill no register.
TEST_P(ReproducibleAttention, OfAnyGroup) {
  for (const int dim : {2, 7, 30, 46}) {
    for (const int group : {1, 2, 3, 4, 5, 7, 9}) {
      SCOPED_TRACE(testing::Message() << dim << " per head, groups of " << group);
      ExpectAnySlices({dim, 1, group, 4}, 150);
    }
  }
}

// A sum that rounds to -0 stays so only if no zeros are added behind it: tiles of rows add some.
TEST_P(ReproducibleAttention, OfValuesThatRoundToZero) {
  constexpr int64_t kTokens = 40;
  constexpr int kDim = 8;
  AttendedSequence sequence(ops_.get(), {kDim, 1, 1, 16}, kTokens, GetParam().dtype);
  Values key(kTokens, kDim, DType::kF32), value(kTokens, kDim, DType::kF32);
  Values query(kTokens, kDim, DType::kF32), all(kTokens, kDim, DType::kF32);
  Values alone(1, kDim, DType::kF32);
  reinterpret_cast<float*>(key.data())[0] = 65.0f;  // the first key outweighs the others
  for (int64_t t = 0; t < kTokens; ++t) {
    reinterpret_cast<float*>(query.data())[t * kDim] = 1.0f;
    reinterpret_cast<float*>(value.data())[t * kDim] = t == 0 ? 0.0f : -9.2e-41f;
  }
  sequence.Store(&key, &value);
  sequence.Attend(query.view(), 0, all.view());
  for (int64_t t = 0; t < kTokens; ++t) {
    sequence.Attend(query.Part(t, 1, 0, kDim), t, alone.view());
    EXPECT_TRUE(alone.Row(0) == all.Row(t)) << t << ": " << alone.At(0, 0) << ", " << all.At(t, 0);
  }
}

std::vector<Params> AllParams() {
  std::vector<Params> all;
  for (const CpuIsa isa :
       {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) all.push_back({isa, dtype});
  }
  return all;
}

std::string ParamName(const testing::TestParamInfo<Params>& info) {
  return std::string(NameOf(info.param.isa)) + "_" + std::string(NameOf(info.param.dtype));
}

INSTANTIATE_TEST_SUITE_P(All, Reproducible, testing::ValuesIn(AllParams()), ParamName);
INSTANTIATE_TEST_SUITE_P(All, ReproducibleAttention, testing::ValuesIn(AllParams()), ParamName);

}  // namespace
}  // namespace skein::engine
