// MatMul and MatMuls.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/ops/conformance/ops_conformance.h"

namespace skein::engine {
namespace {

struct MatMulCase {
  int64_t m, n, k;
};

class MatMulConformance : public OpsConformance {
 protected:
  void Check(MatMulCase c, DType x_dtype, DType w_dtype, DType out_dtype, bool has_bias) {
    SCOPED_TRACE(testing::Message()
                 << c.m << "x" << c.n << "x" << c.k << " x " << NameOf(x_dtype) << " w "
                 << NameOf(w_dtype) << " out " << NameOf(out_dtype) << (has_bias ? " bias" : ""));
    HostBuffer x(c.m, c.k, x_dtype), w(c.n, c.k, w_dtype), bias(1, c.n, w_dtype);
    x.Fill(&random_);
    w.Fill(&random_);
    bias.Fill(&random_);
    HostBuffer actual(c.m, c.n, out_dtype), expected(c.m, c.n, DType::kF32);
    const ConstVector no_bias;
    ops_->MatMul(x.view(), w.view(), has_bias ? bias.const_view() : no_bias, actual.view());
    reference_.MatMul(x.view(), w.view(), has_bias ? bias.const_view() : no_bias, expected.view());
    // f32 sums of k products of size about 1: rounding grows with sqrt(k) of sqrt(k)-sized sums.
    ExpectNear(actual, expected, 3e-7 * static_cast<double>(c.k) + 1e-6, RoundingOf(out_dtype),
               "product");
  }

  // The first and the last m of SkinnyRowsMax rows, for each of `ms` that is no more, against all
  // of them by `other`.
  void CheckInvariance(int64_t n, int64_t k, const std::vector<int64_t>& ms, Ops* other) {
    for (const DType w_dtype : kDTypes) {
      for (const DType x_dtype : {DType::kF32, w_dtype}) {
        const int64_t most = std::min<int64_t>(ops_->SkinnyRowsMax(x_dtype, w_dtype), 300);
        HostBuffer x(most, k, x_dtype), w(n, k, w_dtype), bias(1, n, w_dtype);
        x.Fill(&random_);
        w.Fill(&random_);
        bias.Fill(&random_);
        HostBuffer expected(most, n, DType::kF32);
        other->MatMul(x.view(), w.view(), bias.view(), expected.view());
        for (const int64_t m : ms) {
          if (m > most) continue;
          SCOPED_TRACE(testing::Message()
                       << m << " rows, x " << NameOf(x_dtype) << " w " << NameOf(w_dtype));
          for (const int64_t first : {int64_t{0}, most - m}) {
            ConstMatrix rows = x.view();
            rows.rows = m;
            rows.data = static_cast<const std::byte*>(rows.data) +
                        first * rows.stride * static_cast<int64_t>(BytesOf(x_dtype));
            HostBuffer actual(m, n, DType::kF32);
            ops_->MatMul(rows, w.view(), bias.view(), actual.view());
            ExpectSameBits(actual, expected, first, "product");
          }
        }
      }
    }
  }
};

TEST_P(MatMulConformance, AllDTypes) {
  for (const DType w : kDTypes) {
    for (const DType x : {DType::kF32, w}) {
      for (const DType out : {DType::kF32, w}) {
        for (const int64_t m : {1, 3, 70}) {
          for (const bool bias : {false, true}) Check({m, 133, 100}, x, w, out, bias);
        }
      }
    }
  }
}

TEST_P(MatMulConformance, RowCountsAroundTheStreamedKernel) {
  for (const DType dtype : kDTypes) {
    for (const int64_t m : {1, 2, 4, 5, 6, 7, 8, 11, 13, 18, 24, 25, 31, 32, 33, 64, 65})
      Check({m, 70, 97}, dtype, dtype, DType::kF32, false);
  }
}

TEST_P(MatMulConformance, OddSizes) {
  for (const DType dtype : kDTypes) {
    for (const MatMulCase c :
         {MatMulCase{1, 1, 1}, MatMulCase{2, 5, 8}, MatMulCase{7, 3, 33}, MatMulCase{64, 1, 16},
          MatMulCase{65, 129, 31}, MatMulCase{80, 257, 64}, MatMulCase{33, 300, 96},
          MatMulCase{3, 9, 0}, MatMulCase{90, 9, 0}, MatMulCase{1, 7, 8200}}) {
      Check(c, dtype, dtype, DType::kF32, true);
    }
  }
}

TEST_P(MatMulConformance, LongRowsAreSharedAmongThreads) {
  for (const DType dtype : kDTypes) {
    Check({1, 515, 1024}, dtype, dtype, dtype, false);
    Check({66, 515, 512}, dtype, dtype, dtype, true);
  }
}

TEST_P(MatMulConformance, NoRows) {
  HostBuffer w(8, 16, DType::kBF16);
  w.Fill(&random_);
  HostBuffer x(1, 16, DType::kBF16), out(1, 8, DType::kF32);
  Matrix no_rows = x.view(), no_out = out.view();
  no_rows.rows = no_out.rows = 0;
  ops_->MatMul(no_rows, w.view(), {}, no_out);
}

// Rows are the same bits in calls of any number of rows up to SkinnyRowsMax, anywhere in the call …
TEST_P(MatMulConformance, SkinnyGemmIsBatchInvariant) {
  std::vector<int64_t> all(kSkinnyRowsMax);
  std::iota(all.begin(), all.end(), int64_t{1});
  all.insert(all.end(), {65, 96, 127, 128, 129, 200, 255, 256});
  CheckInvariance(30, 131, all, ops_.get());
}

// … and on any number of threads.
TEST_P(MatMulConformance, SkinnyGemmIsThreadInvariant) {
  const std::unique_ptr<Ops> two_threads = GetParam().make_otherwise_divided();
  CheckInvariance(515, 131, {1, 5, kSkinnyRowsMax, 2 * kSkinnyRowsMax}, two_threads.get());
}

// A lone row goes another way when it is long, and long rows may be summed in parts.
TEST_P(MatMulConformance, LongRowsAreBatchInvariant) {
  for (const int64_t k : {4097, 8193}) {
    SCOPED_TRACE(k);
    CheckInvariance(6, k, {1, 2}, ops_.get());
  }
  for (const int64_t k : {600, 1100}) {
    SCOPED_TRACE(k);
    CheckInvariance(40, k, {1, 8, 9, 17, 33, 64, 65, 129, 256}, ops_.get());
  }
}

// Operands whose rows all begin where wide moves may, and an odd number of columns of them.
TEST_P(MatMulConformance, AlignedRows) {
  for (const DType dtype : kDTypes) {
    for (const int64_t m : {1, 8, 12, 30, 64, 100, 256}) {
      for (const int64_t k : {333, 1088}) {
        SCOPED_TRACE(testing::Message() << m << "x" << k << " " << NameOf(dtype));
        HostBuffer x(m, k, dtype, 16 - k % 8), w(45, k, dtype, 16 - k % 8);
        x.Fill(&random_);
        w.Fill(&random_);
        HostBuffer actual(m, 45, dtype), expected(m, 45, DType::kF32);
        ops_->MatMul(x.view(), w.view(), {}, actual.view());
        reference_.MatMul(x.view(), w.view(), {}, expected.view());
        ExpectNear(actual, expected, 3e-7 * static_cast<double>(k) + 1e-6, RoundingOf(dtype),
                   "product");
      }
    }
  }
}

// A column slice of a wider weight is what a tensor-parallel rank sees.
TEST_P(MatMulConformance, WeightSlices) {
  for (const int64_t m : {2, 60}) {
    HostBuffer full(96, 128, DType::kBF16), x(m, 64, DType::kBF16);
    full.Fill(&random_);
    x.Fill(&random_);
    ConstMatrix slice = full.view();
    slice.data = static_cast<const BF16*>(slice.data) + 64;
    slice.cols = 64;
    HostBuffer actual(m, 96, DType::kF32), expected(m, 96, DType::kF32);
    ops_->MatMul(x.view(), slice, {}, actual.view());
    reference_.MatMul(x.view(), slice, {}, expected.view());
    ExpectNear(actual, expected, 3e-5, 1e-6, "slice");
  }
}

// Maps of the same rows, such as q, k and v: side by side in memory, where an implementation may
// make one of them, and apart. Results are columns of one matrix.
class ProductsConformance : public OpsConformance {
 protected:
  static constexpr int64_t kDepth = 100;
  static constexpr int64_t kWidths[] = {133, 64, 7};
  static constexpr int64_t kColumns = 133 + 64 + 7;

  static Matrix Rows(const HostBuffer& of, int64_t first, int64_t count) {
    Matrix m = const_cast<HostBuffer&>(of).view();
    m.data =
        static_cast<std::byte*>(m.data) + first * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
    m.rows = count;
    return m;
  }
  static Matrix Columns(HostBuffer& of, int64_t first, int64_t count) {
    Matrix m = of.view();
    m.data = static_cast<std::byte*>(m.data) + first * static_cast<int64_t>(BytesOf(m.dtype));
    m.cols = count;
    return m;
  }

  // The products of `m` rows by weights[i] and biases[i] against the reference, and the last of few
  // rows bit by bit against those of it alone.
  void Check(int64_t m, DType x_dtype, const std::vector<ConstMatrix>& weights,
             const std::vector<ConstVector>& biases) {
    SCOPED_TRACE(testing::Message() << m << " rows of " << NameOf(x_dtype));
    HostBuffer x(m, kDepth, x_dtype);
    x.Fill(&random_);
    HostBuffer actual(m, kColumns, DType::kF32), expected(m, kColumns, DType::kF32);
    HostBuffer last(1, kColumns, DType::kF32);
    std::vector<Product> products, of_last;
    int64_t first = 0, invariant = m;
    for (size_t i = 0; i < weights.size(); ++i) {
      const ConstMatrix& w = weights[i];
      products.push_back({w, biases[i], {}, Columns(actual, first, w.rows)});
      of_last.push_back({w, biases[i], {}, Columns(last, first, w.rows)});
      reference_.MatMul(x.view(), w, biases[i], Columns(expected, first, w.rows));
      invariant = std::min(invariant, ops_->SkinnyRowsMax(x_dtype, w.dtype));
      first += w.rows;
    }
    ops_->MatMuls(x.view(), products);
    ExpectNear(actual, expected, 3e-7 * kDepth + 1e-6, RoundingOf(DType::kF32), "products");
    if (m > invariant) return;
    ops_->MatMuls(Rows(x, m - 1, 1), of_last);
    ExpectSameBits(last, actual, m - 1, "products");
  }
};

TEST_P(ProductsConformance, OfNeighbours) {
  for (const DType dtype : kDTypes) {
    for (const DType x_dtype : {DType::kF32, dtype}) {
      for (const bool has_bias : {false, true}) {
        HostBuffer w(kColumns, kDepth, dtype), bias(1, kColumns, dtype, 0);
        w.Fill(&random_);
        bias.Fill(&random_);
        std::vector<ConstMatrix> weights;
        std::vector<ConstVector> biases;
        int64_t first = 0;
        for (const int64_t width : kWidths) {
          weights.push_back(Rows(w, first, width));
          biases.push_back(has_bias ? ConstVector(Columns(bias, first, width)) : ConstVector{});
          first += width;
        }
        for (const int64_t m : {1, 3, 17, 64, 70, 150, 300}) Check(m, x_dtype, weights, biases);
      }
    }
  }
}

// Of several dtypes, and only the second with a bias.
TEST_P(ProductsConformance, OfWeightsApart) {
  for (const bool mixed : {false, true}) {
    std::vector<HostBuffer> w;
    HostBuffer bias(1, kWidths[1], DType::kF16);
    bias.Fill(&random_);
    for (size_t i = 0; i < std::size(kWidths); ++i) {
      w.emplace_back(kWidths[i], kDepth, kDTypes[mixed ? i : 1], 3 + static_cast<int64_t>(i));
      w.back().Fill(&random_);
    }
    const std::vector<ConstMatrix> weights = {w[0].view(), w[1].view(), w[2].view()};
    for (const int64_t m : {1, 5, 16, 64, 65, 200}) {
      Check(m, mixed ? DType::kF32 : DType::kBF16, weights, {{}, bias.const_view(), {}});
    }
  }
}

TEST_P(ProductsConformance, NoneAndOfNoColumns) {
  HostBuffer x(70, kDepth, DType::kBF16), w(9, kDepth, DType::kBF16), out(70, 9, DType::kF32);
  HostBuffer expected(70, 9, DType::kF32);
  x.Fill(&random_);
  w.Fill(&random_);
  ops_->MatMuls(x.view(), {});
  const std::vector<Product> products = {{Rows(w, 0, 0), {}, {}, Columns(out, 0, 0)},
                                         {w.view(), {}, {}, out.view()},
                                         {Rows(w, 9, 0), {}, {}, Columns(out, 9, 0)}};
  ops_->MatMuls(x.view(), products);
  reference_.MatMul(x.view(), w.view(), {}, expected.view());
  ExpectNear(out, expected, 3e-7 * kDepth + 1e-6, RoundingOf(DType::kF32), "product");
}

INSTANTIATE_TEST_SUITE_P(All, ProductsConformance, testing::ValuesIn(Implementations()),
                         NameOfImplementation);

INSTANTIATE_TEST_SUITE_P(All, MatMulConformance, testing::ValuesIn(Implementations()),
                         NameOfImplementation);

}  // namespace
}  // namespace skein::engine
