// StoreKv, PagedAttention, MergeAttention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "engine/ops/conformance/ops_conformance.h"

namespace skein::engine {
namespace {

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
    HostBuffer q(tokens_, cols, DType::kF32);
    q.Fill(&random_);
    HostBuffer together(tokens_, cols, DType::kF32), together_lse(tokens_, c.heads, DType::kF32);
    ops_->PagedAttention(q.view(), spans_, View(&pool_), scale, together.view(),
                         together_lse.view());
    const std::unique_ptr<Ops> other_threads = GetParam().make_otherwise_divided();
    for (SequenceSpan span : spans_) {
      const int64_t first = span.token_begin;
      span.token_begin = 0;
      ConstMatrix rows = q.view();
      rows.rows = span.token_count;
      rows.data = static_cast<const float*>(rows.data) + first * rows.stride;
      HostBuffer alone(span.token_count, cols, DType::kF32);
      HostBuffer lse(span.token_count, c.heads, DType::kF32);
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
    const int64_t per_block = TokensPerBlock(layout, spec_);
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
    const int64_t cols = int64_t{KvHeads(KvLayout{c.tp}, spec_)} * c.head_dim;
    for (const SequenceSpan& s : spans_) {
      if (s.position == 0) continue;
      HostBuffer k(s.position, cols, DType::kF32), v(s.position, cols, DType::kF32);
      k.Fill(&random_);
      v.Fill(&random_);
      const SequenceSpan history{0, s.position, 0, s.block_table, s.layout};
      reference_.StoreKv(k.view(), v.view(), {&history, 1}, View(&pool_), {});
    }
  }

  void CheckStoreKv(const AttentionCase& c) {
    const int64_t cols = int64_t{KvHeads(KvLayout{c.tp}, spec_)} * c.head_dim;
    HostBuffer k(tokens_, cols, DType::kF32), v(tokens_, cols, DType::kF32);
    k.Fill(&random_);
    v.Fill(&random_);
    std::vector<SequenceSpan> stored;
    for (const SequenceSpan& s : spans_) {
      if (s.keys < 0) stored.push_back(s);
    }
    std::vector<std::byte> expected = pool_;
    ops_->StoreKv(k.view(), v.view(), stored, View(&pool_), {});
    reference_.StoreKv(k.view(), v.view(), stored, View(&expected), {});
    ASSERT_TRUE(pool_ == expected) << "StoreKv wrote other bytes";
    if (c.head_dim % 2 == 0) CheckRotatedStoreKv(c, stored);
  }

  // Keys that are rotated to positions other than their places in the blocks.
  void CheckRotatedStoreKv(const AttentionCase& c, const std::vector<SequenceSpan>& stored) {
    constexpr int64_t kPositions = 50;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < kPositions * c.head_dim / 2; ++i) {
      cos.push_back(std::cos(static_cast<float>(i)));
      sin.push_back(std::sin(static_cast<float>(i)));
    }
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < tokens_; ++t) positions.push_back(static_cast<int32_t>(t * 7 % 50));
    const Rotation rotation = {positions, {cos.data(), sin.data(), kPositions, c.head_dim}};
    const int64_t cols = int64_t{KvHeads(KvLayout{c.tp}, spec_)} * c.head_dim;
    HostBuffer k(tokens_, cols, DType::kF32), v(tokens_, cols, DType::kF32);
    k.Fill(&random_);
    v.Fill(&random_);
    HostBuffer expected_k = k;
    std::vector<std::byte> expected = pool_;
    ops_->StoreKv(k.view(), v.view(), stored, View(&pool_), rotation);
    reference_.StoreKv(expected_k.view(), v.view(), stored, View(&expected), rotation);
    const auto elements = static_cast<int64_t>(pool_.size() / BytesOf(c.kv_dtype));
    for (int64_t i = 0; i < elements; ++i) {
      const float a = LoadElement(pool_.data(), c.kv_dtype, i);
      const float e = LoadElement(expected.data(), c.kv_dtype, i);
      if (std::isnan(a) && std::isnan(e)) continue;
      ASSERT_NEAR(a, e, 1e-6 + 2 * RoundingOf(c.kv_dtype) * std::abs(e)) << "element " << i;
    }
  }

  void CheckAttend(const AttentionCase& c, bool want_lse) {
    const int64_t cols = int64_t{c.heads} * c.head_dim;
    HostBuffer q(tokens_, cols, DType::kF32);
    q.Fill(&random_, c.spread);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    HostBuffer actual(tokens_, cols, c.out_dtype), expected(tokens_, cols, DType::kF32);
    HostBuffer lse(tokens_, c.heads, DType::kF32), expected_lse(tokens_, c.heads, DType::kF32);
    ops_->PagedAttention(q.view(), spans_, View(&pool_), scale, actual.view(),
                         want_lse ? lse.view() : Matrix{});
    reference_.PagedAttention(q.view(), spans_, View(&pool_), scale, expected.view(),
                              expected_lse.view());
    const double tolerance = ToleranceOf(c.kv_dtype) * c.spread;
    ExpectNear(actual, expected, tolerance, tolerance + RoundingOf(c.out_dtype), "attention");
    if (want_lse) ExpectNear(lse, expected_lse, tolerance, 1e-5, "lse");
  }

  // Where queries and weights may be rounded to KV's dtype, in sums of elements about 1; f16 is
  // eight times as fine as bf16. Otherwise all is f32. A score's error grows with the score.
  static double ToleranceOf(DType kv_dtype) {
    if (kv_dtype == DType::kBF16) return 1.5e-2;
    return kv_dtype == DType::kF16 && GetParam().attends_in_f16 ? 1.5e-2 / 8 : 1e-5;
  }

  KvSpec spec_;
  std::vector<std::byte> pool_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<SequenceSpan> spans_;
  int64_t tokens_ = 0;
};

// Prefill from nothing, decode, a later slice, an empty share, a single first token.
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
    Check({4, 1, 32, 16, kv, DType::kF32, 1, {{1100, 8, 1090}, {1500, 70, 1499}}});
    CheckInvariance({8, 2, 16, 16, kv, DType::kF32, 1, mixed});
  }
}

// Decode at all lengths, short slices and long ones.
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

TEST_P(AttentionConformance, MergeAttention) {
  const float none = -std::numeric_limits<float>::infinity();
  for (const int64_t dim : {8, 80, 128}) {
    HostBuffer out_a(6, 4 * dim, DType::kF32), out_b(6, 4 * dim, DType::kF32);
    HostBuffer lse_a(6, 4, DType::kF32), lse_b(6, 4, DType::kF32);
    for (HostBuffer* buffer : {&out_a, &out_b}) buffer->Fill(&random_);
    for (HostBuffer* buffer : {&lse_a, &lse_b}) buffer->Fill(&random_, 5.0f);
    lse_a.set(0, 0, none);
    out_a.set(0, 0, std::nanf(""));
    lse_b.set(1, 1, none);
    out_b.set(1, dim, std::nanf(""));
    lse_a.set(2, 2, none);
    lse_b.set(2, 2, none);
    HostBuffer expected = out_a, expected_lse = lse_a;
    ops_->MergeAttention(out_a.view(), lse_a.view(), out_b.view(), lse_b.view());
    reference_.MergeAttention(expected.view(), expected_lse.view(), out_b.view(), lse_b.view());
    ExpectNear(out_a, expected, 1e-6, 1e-6, "merged");
    ExpectNear(lse_a, expected_lse, 1e-6, 1e-6, "merged lse");
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionConformance, testing::ValuesIn(Implementations()),
                         NameOfImplementation);

}  // namespace
}  // namespace skein::engine
