// Every implementation of Ops against ReferenceOps: implementation x isa x threads, and within each
// test dtypes, odd sizes, strides, ragged batches and layouts. All data comes from a seeded
// generator. Tolerances are relative to the size of the sums involved, so they do not grow with the
// values.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/element.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// Half the distance between neighbours, relative to the value.
double RoundingOf(DType dtype) {
  return dtype == DType::kF32 ? 6e-8 : dtype == DType::kBF16 ? 3.92e-3 : 4.9e-4;
}

// A matrix that owns its elements, with a stride wider than its rows.
class Buffer {
 public:
  Buffer(int64_t rows, int64_t cols, DType dtype, int64_t padding = 3)
      : bytes_(static_cast<size_t>(rows * (cols + padding) + 1) * BytesOf(dtype)),
        view_{bytes_.data(), dtype, rows, cols, cols + padding} {}

  Matrix view() { return view_; }
  ConstMatrix const_view() const { return view_; }
  float at(int64_t row, int64_t col) const {
    return LoadElement(view_.data, view_.dtype, row * view_.stride + col);
  }
  void set(int64_t row, int64_t col, float value) {
    StoreElement(view_.data, view_.dtype, row * view_.stride + col, value);
  }

  Buffer& Fill(std::mt19937* random, float spread = 1.0f) {
    std::normal_distribution<float> draw(0.0f, spread);
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) set(r, c, draw(*random));
    }
    return *this;
  }
  Buffer(const Buffer& other) : bytes_(other.bytes_), view_(other.view_) {
    view_.data = bytes_.data();
  }
  Buffer& operator=(const Buffer&) = delete;

 private:
  std::vector<std::byte> bytes_;
  Matrix view_;
};

// |actual - expected| ≤ absolute + relative * |expected|, everywhere.
void ExpectNear(const Buffer& actual, const Buffer& expected, double absolute, double relative,
                const std::string& what) {
  const ConstMatrix shape = expected.const_view();
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      const double a = actual.at(r, c), e = expected.at(r, c);
      if (a == e) continue;  // infinities too
      ASSERT_LE(std::abs(a - e), absolute + relative * std::abs(e))
          << what << " row " << r << " col " << c << ": " << a << " instead of " << e;
    }
  }
}

void ExpectSame(const Buffer& actual, const Buffer& expected, const std::string& what) {
  ExpectNear(actual, expected, 0.0, 0.0, what);
}

// As ExpectSame, bit by bit, for rows [first, first + actual's rows) of `expected`.
void ExpectSameBits(const Buffer& actual, const Buffer& expected, int64_t first,
                    const std::string& what) {
  const ConstMatrix shape = actual.const_view();
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual.at(r, c)),
                std::bit_cast<uint32_t>(expected.at(first + r, c)))
          << what << " row " << first + r << " col " << c;
    }
  }
}

struct Implementation {
  std::string name;
  CpuIsa isa;
  std::function<std::unique_ptr<Ops>()> make;
};

void PrintTo(const Implementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

std::vector<Implementation> Implementations() {
  std::vector<Implementation> all;
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512Bf16}) {
    if (!IsSupported(isa)) continue;
    for (const int threads : {1, 3}) {
      all.push_back({"cpu_" + std::string(NameOf(isa)) + "_" + std::to_string(threads), isa, [=] {
                       return std::move(MakeCpuOps({threads, isa})).value();
                     }});
    }
  }
  return all;
}

class OpsConformance : public testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam().make();
  ReferenceOps reference_;
  std::mt19937 random_{20260731};
};

TEST_P(OpsConformance, Embed) {
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 15, 64, 777}) {
      Buffer table(11, hidden, dtype);
      table.Fill(&random_);
      const std::vector<int32_t> ids = {3, 10, 0, 3};
      for (const DType out : kDTypes) {
        Buffer actual(4, hidden, out), expected(4, hidden, out);
        ops_->Embed(ids, table.view(), actual.view());
        reference_.Embed(ids, table.view(), expected.view());
        ExpectSame(actual, expected, "embed " + std::to_string(hidden));
      }
    }
  }
}

TEST_P(OpsConformance, RmsNorm) {
  for (const DType weight_dtype : kDTypes) {
    for (const DType out_dtype : kDTypes) {
      for (const int64_t n : {1, 7, 16, 80, 129, 2048}) {
        Buffer x(37, n, DType::kF32), weight(1, n, weight_dtype);
        x.Fill(&random_, 3.0f);
        weight.Fill(&random_);
        Buffer actual(37, n, out_dtype), expected(37, n, DType::kF32);
        ops_->RmsNorm(x.view(), weight.view(), 1e-5f, actual.view());
        reference_.RmsNorm(x.view(), weight.view(), 1e-5f, expected.view());
        ExpectNear(actual, expected, 1e-7, 2e-6 + RoundingOf(out_dtype),
                   "rms norm " + std::to_string(n));
      }
    }
  }
}

TEST_P(OpsConformance, RmsNormInPlace) {
  Buffer x(5, 100, DType::kF32), weight(1, 100, DType::kF32);
  x.Fill(&random_);
  weight.Fill(&random_);
  Buffer expected(5, 100, DType::kF32);
  reference_.RmsNorm(x.view(), weight.view(), 1e-6f, expected.view());
  ops_->RmsNorm(x.view(), weight.view(), 1e-6f, x.view());
  ExpectNear(x, expected, 1e-7, 2e-6, "rms norm in place");
}

struct MatMulCase {
  int64_t m, n, k;
};

class MatMulConformance : public OpsConformance {
 protected:
  void Check(MatMulCase c, DType x_dtype, DType w_dtype, DType out_dtype, bool has_bias) {
    SCOPED_TRACE(testing::Message()
                 << c.m << "x" << c.n << "x" << c.k << " x " << NameOf(x_dtype) << " w "
                 << NameOf(w_dtype) << " out " << NameOf(out_dtype) << (has_bias ? " bias" : ""));
    Buffer x(c.m, c.k, x_dtype), w(c.n, c.k, w_dtype), bias(1, c.n, w_dtype);
    x.Fill(&random_);
    w.Fill(&random_);
    bias.Fill(&random_);
    Buffer actual(c.m, c.n, out_dtype), expected(c.m, c.n, DType::kF32);
    const ConstVector no_bias;
    ops_->MatMul(x.view(), w.view(), has_bias ? bias.const_view() : no_bias, actual.view());
    reference_.MatMul(x.view(), w.view(), has_bias ? bias.const_view() : no_bias, expected.view());
    // f32 sums of k products of size about 1: rounding grows with sqrt(k) of sqrt(k)-sized sums.
    ExpectNear(actual, expected, 3e-7 * static_cast<double>(c.k) + 1e-6, RoundingOf(out_dtype),
               "product");
  }

  // The first and the last m of kFewRowsMax rows, for each of `ms`, against all of them by `other`.
  void CheckInvariance(int64_t n, int64_t k, const std::vector<int64_t>& ms, Ops* other) {
    for (const DType w_dtype : kDTypes) {
      for (const DType x_dtype : {DType::kF32, w_dtype}) {
        Buffer x(kFewRowsMax, k, x_dtype), w(n, k, w_dtype), bias(1, n, w_dtype);
        x.Fill(&random_);
        w.Fill(&random_);
        bias.Fill(&random_);
        Buffer expected(kFewRowsMax, n, DType::kF32);
        other->MatMul(x.view(), w.view(), bias.view(), expected.view());
        for (const int64_t m : ms) {
          SCOPED_TRACE(testing::Message()
                       << m << " rows, x " << NameOf(x_dtype) << " w " << NameOf(w_dtype));
          for (const int64_t first : {int64_t{0}, kFewRowsMax - m}) {
            ConstMatrix rows = x.view();
            rows.rows = m;
            rows.data = static_cast<const std::byte*>(rows.data) +
                        first * rows.stride * static_cast<int64_t>(BytesOf(x_dtype));
            Buffer actual(m, n, DType::kF32);
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
  Buffer w(8, 16, DType::kBF16);
  w.Fill(&random_);
  Buffer x(1, 16, DType::kBF16), out(1, 8, DType::kF32);
  Matrix no_rows = x.view(), no_out = out.view();
  no_rows.rows = no_out.rows = 0;
  ops_->MatMul(no_rows, w.view(), {}, no_out);
}

// Rows are the same bits in calls of any number of rows up to kFewRowsMax, anywhere in the call …
TEST_P(MatMulConformance, FewRowsAreBatchInvariant) {
  std::vector<int64_t> all(kFewRowsMax);
  std::iota(all.begin(), all.end(), int64_t{1});
  CheckInvariance(30, 131, all, ops_.get());
}

// … and on any number of threads.
TEST_P(MatMulConformance, FewRowsAreThreadInvariant) {
  const std::unique_ptr<Ops> two_threads = std::move(MakeCpuOps({2, GetParam().isa})).value();
  CheckInvariance(515, 131, {1, 5, kFewRowsMax}, two_threads.get());
}

// A lone row goes another way when it is long.
TEST_P(MatMulConformance, LongRowsAreBatchInvariant) {
  for (const int64_t k : {4097, 8193}) {
    SCOPED_TRACE(k);
    CheckInvariance(6, k, {1, 2}, ops_.get());
  }
}

// A column slice of a wider weight is what a tensor-parallel rank sees.
TEST_P(MatMulConformance, WeightSlices) {
  for (const int64_t m : {2, 60}) {
    Buffer full(96, 128, DType::kBF16), x(m, 64, DType::kBF16);
    full.Fill(&random_);
    x.Fill(&random_);
    ConstMatrix slice = full.view();
    slice.data = static_cast<const BF16*>(slice.data) + 64;
    slice.cols = 64;
    Buffer actual(m, 96, DType::kF32), expected(m, 96, DType::kF32);
    ops_->MatMul(x.view(), slice, {}, actual.view());
    reference_.MatMul(x.view(), slice, {}, expected.view());
    ExpectNear(actual, expected, 3e-5, 1e-6, "slice");
  }
}

TEST_P(OpsConformance, Rope) {
  for (const int head_dim : {8, 16, 30, 64, 80, 128, 256}) {
    constexpr int64_t kPositions = 40;
    const int64_t half = head_dim / 2;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < kPositions * half; ++i) {
      cos.push_back(std::cos(static_cast<float>(i)));
      sin.push_back(std::sin(static_cast<float>(i)));
    }
    const RopeTable table{cos.data(), sin.data(), kPositions, head_dim};
    const std::vector<int32_t> positions = {0, 39, 7, 7, 12};
    Buffer actual(5, 3 * head_dim, DType::kF32);
    actual.Fill(&random_);
    Buffer expected = actual;
    ops_->Rope(actual.view(), positions, table);
    reference_.Rope(expected.view(), positions, table);
    ExpectNear(actual, expected, 1e-6, 1e-6, "rope " + std::to_string(head_dim));
  }
}

TEST_P(OpsConformance, SwiGlu) {
  for (const DType out_dtype : kDTypes) {
    for (const int64_t n : {1, 15, 33, 5632}) {
      Buffer both(9, 2 * n, DType::kF32);
      both.Fill(&random_, 6.0f);
      both.set(0, 0, -120.0f);
      both.set(1, 0, 120.0f);
      ConstMatrix gate = both.view(), up = both.view();
      gate.cols = up.cols = n;
      up.data = static_cast<const float*>(up.data) + n;
      Buffer actual(9, n, out_dtype), expected(9, n, DType::kF32);
      ops_->SwiGlu(gate, up, actual.view());
      reference_.SwiGlu(gate, up, expected.view());
      ExpectNear(actual, expected, 1e-7, 1e-6 + RoundingOf(out_dtype),
                 "swiglu " + std::to_string(n));
    }
  }
}

TEST_P(OpsConformance, Add) {
  for (const int64_t n : {1, 17, 4096}) {
    Buffer actual(13, n, DType::kF32), y(13, n, DType::kF32);
    actual.Fill(&random_);
    y.Fill(&random_);
    Buffer expected = actual;
    ops_->Add(actual.view(), y.view());
    reference_.Add(expected.view(), y.view());
    ExpectSame(actual, expected, "add " + std::to_string(n));
  }
}

TEST_P(OpsConformance, MergeAttention) {
  const float none = -std::numeric_limits<float>::infinity();
  for (const int64_t dim : {8, 80, 128}) {
    Buffer out_a(6, 4 * dim, DType::kF32), out_b(6, 4 * dim, DType::kF32);
    Buffer lse_a(6, 4, DType::kF32), lse_b(6, 4, DType::kF32);
    for (Buffer* buffer : {&out_a, &out_b}) buffer->Fill(&random_);
    for (Buffer* buffer : {&lse_a, &lse_b}) buffer->Fill(&random_, 5.0f);
    lse_a.set(0, 0, none);
    out_a.set(0, 0, std::nanf(""));
    lse_b.set(1, 1, none);
    out_b.set(1, dim, std::nanf(""));
    lse_a.set(2, 2, none);
    lse_b.set(2, 2, none);
    Buffer expected = out_a, expected_lse = lse_a;
    ops_->MergeAttention(out_a.view(), lse_a.view(), out_b.view(), lse_b.view());
    reference_.MergeAttention(expected.view(), expected_lse.view(), out_b.view(), lse_b.view());
    ExpectNear(out_a, expected, 1e-6, 1e-6, "merged");
    ExpectNear(lse_a, expected_lse, 1e-6, 1e-6, "merged lse");
  }
}

// One pool, a ragged batch and what each implementation makes of it.
struct AttentionCase {
  struct Sequence {
    int64_t position, tokens;
    int64_t keys = -1;  // of the positions before the batch; its rows then store nothing
  };
  int heads, kv_heads, head_dim, block_tokens;
  DType kv_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  int tp = 1;
  std::vector<Sequence> sequences;
  float spread = 1.0f;  // of queries
};

class AttentionConformance : public OpsConformance {
 protected:
  void Check(const AttentionCase& c) {
    SCOPED_TRACE(testing::Message()
                 << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", blocks of "
                 << c.block_tokens << ", kv " << NameOf(c.kv_dtype) << ", out "
                 << NameOf(c.out_dtype) << ", tp " << c.tp << ", " << c.sequences.size()
                 << " sequences");
    MakeBatch(c);
    StoreHistory(c);
    CheckStoreKv(c);
    CheckAttend(c, true);
    CheckAttend(c, false);
  }

  // Each sequence of `c` alone is the same bits as in the batch, on any number of threads.
  void CheckInvariance(const AttentionCase& c) {
    SCOPED_TRACE(testing::Message() << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim
                                    << ", kv " << NameOf(c.kv_dtype));
    MakeBatch(c);
    StoreHistory(c);
    CheckStoreKv(c);
    const int64_t cols = int64_t{c.heads} * c.head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    Buffer q(tokens_, cols, DType::kF32);
    q.Fill(&random_);
    Buffer together(tokens_, cols, DType::kF32), together_lse(tokens_, c.heads, DType::kF32);
    ops_->PagedAttention(q.view(), spans_, View(&pool_), scale, together.view(),
                         together_lse.view());
    const std::unique_ptr<Ops> other_threads = std::move(MakeCpuOps({2, GetParam().isa})).value();
    for (SequenceSpan span : spans_) {
      const int64_t first = span.token_begin;
      span.token_begin = 0;
      ConstMatrix rows = q.view();
      rows.rows = span.token_count;
      rows.data = static_cast<const float*>(rows.data) + first * rows.stride;
      Buffer alone(span.token_count, cols, DType::kF32);
      Buffer lse(span.token_count, c.heads, DType::kF32);
      other_threads->PagedAttention(rows, {&span, 1}, View(&pool_), scale, alone.view(),
                                    lse.view());
      ExpectSameBits(alone, together, first, "attention");
      ExpectSameBits(lse, together_lse, first, "lse");
    }
  }

 private:
  void MakeBatch(const AttentionCase& c) {
    spec_ = {1, c.kv_heads, c.head_dim, c.block_tokens, c.kv_dtype, 0};
    const KvLayout layout{c.tp};
    const int64_t per_block = layout.TokensPerBlock(spec_);
    int64_t blocks = 0;
    for (const auto& s : c.sequences) blocks += BlocksOf(s, per_block);
    spec_.num_blocks = blocks + 3;
    std::vector<int32_t> ids(static_cast<size_t>(spec_.num_blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random_);
    tables_.clear();
    spans_.clear();
    tokens_ = 0;
    for (const auto& s : c.sequences) {
      const int64_t count = BlocksOf(s, per_block);
      tables_.emplace_back(ids.end() - count, ids.end());
      ids.resize(ids.size() - static_cast<size_t>(count));
      spans_.push_back({tokens_, s.tokens, s.position, {}, layout, s.keys});
      tokens_ += s.tokens;
    }
    for (size_t i = 0; i < spans_.size(); ++i) spans_[i].block_table = tables_[i];
    // What nobody wrote is NaN: whoever reads it is found out.
    const size_t elements =
        static_cast<size_t>(spec_.num_blocks * spec_.BlockBytes()) / BytesOf(c.kv_dtype);
    pool_.assign(elements * BytesOf(c.kv_dtype), std::byte{0});
    for (size_t i = 0; i < elements; ++i) {
      StoreElement(pool_.data(), c.kv_dtype, static_cast<int64_t>(i), std::nanf(""));
    }
  }

  static int64_t BlocksOf(const AttentionCase::Sequence& s, int64_t per_block) {
    return (s.position + (s.keys >= 0 ? 0 : s.tokens) + per_block - 1) / per_block;
  }

  KvLayerView View(std::vector<std::byte>* pool) const { return {pool->data(), &spec_}; }

  // Keys and values of the positions before the batch, by the oracle.
  void StoreHistory(const AttentionCase& c) {
    const int64_t cols = int64_t{KvLayout{c.tp}.KvHeads(spec_)} * c.head_dim;
    for (const SequenceSpan& s : spans_) {
      if (s.position == 0) continue;
      Buffer k(s.position, cols, DType::kF32), v(s.position, cols, DType::kF32);
      k.Fill(&random_);
      v.Fill(&random_);
      const SequenceSpan history{0, s.position, 0, s.block_table, s.layout};
      reference_.StoreKv(k.view(), v.view(), {&history, 1}, View(&pool_));
    }
  }

  void CheckStoreKv(const AttentionCase& c) {
    const int64_t cols = int64_t{KvLayout{c.tp}.KvHeads(spec_)} * c.head_dim;
    Buffer k(tokens_, cols, DType::kF32), v(tokens_, cols, DType::kF32);
    k.Fill(&random_);
    v.Fill(&random_);
    std::vector<SequenceSpan> stored;
    for (const SequenceSpan& s : spans_) {
      if (s.keys < 0) stored.push_back(s);
    }
    std::vector<std::byte> expected = pool_;
    ops_->StoreKv(k.view(), v.view(), stored, View(&pool_));
    reference_.StoreKv(k.view(), v.view(), stored, View(&expected));
    ASSERT_TRUE(pool_ == expected) << "StoreKv wrote other bytes";
  }

  void CheckAttend(const AttentionCase& c, bool want_lse) {
    const int64_t cols = int64_t{c.heads} * c.head_dim;
    Buffer q(tokens_, cols, DType::kF32);
    q.Fill(&random_, c.spread);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    Buffer actual(tokens_, cols, c.out_dtype), expected(tokens_, cols, DType::kF32);
    Buffer lse(tokens_, c.heads, DType::kF32), expected_lse(tokens_, c.heads, DType::kF32);
    ops_->PagedAttention(q.view(), spans_, View(&pool_), scale, actual.view(),
                         want_lse ? lse.view() : Matrix{});
    reference_.PagedAttention(q.view(), spans_, View(&pool_), scale, expected.view(),
                              expected_lse.view());
    // With bf16 KV queries and weights may be rounded to bf16; otherwise all is f32. A score's
    // error grows with the score.
    const double tolerance = (c.kv_dtype == DType::kBF16 ? 1.5e-2 : 1e-5) * c.spread;
    ExpectNear(actual, expected, tolerance, tolerance + RoundingOf(c.out_dtype), "attention");
    if (want_lse) ExpectNear(lse, expected_lse, tolerance, 1e-5, "lse");
  }

  KvSpec spec_;
  std::vector<std::byte> pool_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<SequenceSpan> spans_;
  int64_t tokens_ = 0;
};

// Prefill from nothing, decode, a later chunk, an empty share, a single first token.
const std::vector<AttentionCase::Sequence> kRagged = {{0, 19}, {33, 1}, {5, 12}, {7, 0}, {0, 1}};

TEST_P(AttentionConformance, HeadDims) {
  for (const int head_dim : {8, 9, 16, 40, 64, 80, 96, 128, 256}) {
    for (const DType kv : kDTypes) {
      Check({4, 2, head_dim, 16, kv, DType::kF32, 1, kRagged});
    }
  }
}

TEST_P(AttentionConformance, Groupings) {
  struct Heads {
    int heads, kv_heads;
  };
  for (const Heads h : {Heads{1, 1}, Heads{3, 3}, Heads{6, 2}, Heads{8, 1}, Heads{7, 1},
                        Heads{32, 4}, Heads{71, 1}}) {
    for (const DType kv : kDTypes) {
      Check({h.heads, h.kv_heads, 32, 16, kv, DType::kF32, 1, kRagged});
    }
  }
}

TEST_P(AttentionConformance, BlockSizes) {
  for (const int block_tokens : {1, 3, 16, 64}) {
    for (const DType kv : kDTypes) {
      Check({4, 2, 24, block_tokens, kv, DType::kF32, 1, kRagged});
    }
  }
}

TEST_P(AttentionConformance, OutputDTypes) {
  for (const DType out : kDTypes) {
    for (const DType kv : kDTypes) Check({4, 2, 64, 16, kv, out, 1, kRagged});
  }
}

// A block of a group of p ranks holds 1/p of the heads and p times the tokens; one head at least.
TEST_P(AttentionConformance, Layouts) {
  for (const int tp : {1, 2, 4, 8}) {
    for (const DType kv : kDTypes) Check({8, 4, 32, 16, kv, DType::kF32, tp, kRagged});
  }
}

TEST_P(AttentionConformance, LongHistory) {
  for (const DType kv : kDTypes) {
    Check({4, 2, 64, 16, kv, DType::kF32, 1, {{700, 1}}});
    Check({2, 2, 32, 16, kv, DType::kF32, 1, {{1030, 3}}});
    Check({8, 2, 16, 16, kv, DType::kBF16, 1, {{255, 70}, {127, 130}}});
  }
}

// Rows that all see the same keys, fewer than stored, among causal ones: one row, a few, more than
// a tile; no key, one, a whole block, beyond a split.
TEST_P(AttentionConformance, AllRowsSeeTheSameKeys) {
  const std::vector<AttentionCase::Sequence> mixed = {
      {40, 3, 33}, {0, 19},     {50, 90, 50}, {20, 5, 0}, {20, 70, 0},
      {33, 1},     {16, 7, 16}, {1, 65, 1},   {0, 4, 0},  {700, 1, 699}};
  for (const int block_tokens : {1, 5, 16}) {
    for (const DType kv : kDTypes) {
      Check({4, 2, 24, block_tokens, kv, DType::kF32, 1, mixed});
      Check({4, 4, 16, block_tokens, kv, kv, 2, mixed});
    }
  }
  for (const DType kv : kDTypes) {
    Check({4, 1, 64, 16, kv, DType::kF32, 1, {{1100, 8, 1090}, {1500, 200, 1499}}});
    CheckInvariance({8, 2, 16, 16, kv, DType::kF32, 1, mixed});
  }
}

// Decode at all lengths, short chunks and long ones.
TEST_P(AttentionConformance, SequencesAreBatchInvariant) {
  const std::vector<AttentionCase::Sequence> sequences = {{0, 1},   {130, 1}, {1023, 1}, {1024, 1},
                                                          {600, 2}, {580, 8}, {40, 90}};
  for (const DType kv : kDTypes) {
    CheckInvariance({4, 2, 16, 16, kv, DType::kF32, 1, sequences});
    CheckInvariance({8, 1, 8, 16, kv, DType::kF32, 1, sequences});
  }
}

TEST_P(AttentionConformance, LargeScoresDoNotOverflow) {
  for (const DType kv : kDTypes) Check({4, 2, 64, 16, kv, DType::kF32, 1, kRagged, 60.0f});
}

std::string NameOfParam(const testing::TestParamInfo<Implementation>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, OpsConformance, testing::ValuesIn(Implementations()), NameOfParam);
INSTANTIATE_TEST_SUITE_P(All, MatMulConformance, testing::ValuesIn(Implementations()), NameOfParam);
INSTANTIATE_TEST_SUITE_P(All, AttentionConformance, testing::ValuesIn(Implementations()),
                         NameOfParam);

TEST(MakeCpuOps, RefusesNoThreads) {
  EXPECT_EQ(MakeCpuOps({0, CpuIsa::kAuto}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace skein::engine
