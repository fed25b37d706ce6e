#include "engine/ops/ops_checks.h"

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

void CheckView(const ConstMatrix& m) {
  SKEIN_CHECK(m.rows >= 0 && m.cols >= 0);
  SKEIN_CHECK(m.rows == 0 || m.cols == 0 || m.data != nullptr);
  SKEIN_CHECK_MSG(m.rows <= 1 || m.stride >= m.cols, "stride is smaller than a row");
}

void CheckF32(const ConstMatrix& m) { SKEIN_CHECK(m.dtype == DType::kF32); }

void CheckSameShape(const ConstMatrix& a, const ConstMatrix& b) {
  SKEIN_CHECK(a.rows == b.rows && a.cols == b.cols);
}

int64_t KeysOf(const SequenceSpan& s) { return s.keys >= 0 ? s.keys : s.position + s.token_count; }

// A block table must cover the sequence and name blocks of the pool only; the sequences must lie
// inside the batch and agree on the width of a row's keys.
void CheckSequences(std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                    int64_t batch_tokens) {
  SKEIN_CHECK(kv.spec != nullptr && kv.spec->head_dim > 0 && kv.spec->block_tokens > 0);
  SKEIN_CHECK(kv.base != nullptr);
  for (const SequenceSpan& s : sequences) {
    SKEIN_CHECK(s.token_begin >= 0 && s.token_count >= 0 && s.position >= 0);
    SKEIN_CHECK(s.token_begin + s.token_count <= batch_tokens);
    SKEIN_CHECK_MSG(FitsHeads(s.layout, *kv.spec), "the layout's tp does not fit kv_heads");
    const int64_t per_block = TokensPerBlock(s.layout, *kv.spec);
    const int64_t blocks = (KeysOf(s) + per_block - 1) / per_block;
    SKEIN_CHECK_MSG(blocks <= static_cast<int64_t>(s.block_table.size()), "short block table");
    for (int64_t i = 0; i < blocks; ++i) {
      const int32_t block = s.block_table[static_cast<size_t>(i)];
      SKEIN_CHECK_MSG(block >= 0 && block < kv.spec->num_blocks, "block id out of range");
    }
  }
}

}  // namespace

void CheckEmbed(std::span<const int32_t> ids, const ConstMatrix& table, const Matrix& out) {
  CheckView(table);
  CheckView(out);
  SKEIN_CHECK(out.rows == static_cast<int64_t>(ids.size()) && out.cols == table.cols);
  for (const int32_t id : ids) SKEIN_CHECK_MSG(id >= 0 && id < table.rows, "token id out of range");
}

void CheckRmsNorm(const ConstMatrix& x, const ConstVector& weight, const Matrix& out) {
  CheckView(x);
  CheckView(out);
  CheckF32(x);
  CheckSameShape(x, out);
  SKEIN_CHECK(weight.data != nullptr && weight.cols > 0 && x.cols % weight.cols == 0);
  SKEIN_CHECK_MSG(out.data != x.data || out.dtype == DType::kF32, "in place is for f32 only");
}

void CheckAddRmsNorm(const Matrix& x, const ConstMatrix& y, const ConstVector& weight,
                     const Matrix& out) {
  CheckAdd(x, y);
  CheckRmsNorm(x, weight, out);
  SKEIN_CHECK(weight.cols == x.cols);
  SKEIN_CHECK_MSG(out.rows == 0 || out.data != x.data, "not in place");
}

void CheckMatMuls(const ConstMatrix& x, std::span<const Product> products) {
  CheckView(x);
  for (const auto& [w, bias, slice, out] : products) {
    CheckView(w);
    CheckView(out);
    SKEIN_CHECK(x.cols == w.cols && out.rows == x.rows && out.cols == w.rows);
    SKEIN_CHECK(x.dtype == DType::kF32 || x.dtype == w.dtype);
    SKEIN_CHECK(out.dtype == DType::kF32 || out.dtype == w.dtype);
    SKEIN_CHECK(bias.empty() || bias.cols == w.rows);
  }
}

void CheckRope(const ConstMatrix& x, std::span<const int32_t> positions, const RopeTable& table) {
  CheckView(x);
  CheckF32(x);
  SKEIN_CHECK(table.head_dim > 0 && table.head_dim % 2 == 0 && x.cols % table.head_dim == 0);
  SKEIN_CHECK(x.rows == static_cast<int64_t>(positions.size()));
  for (const int32_t p : positions) {
    SKEIN_CHECK_MSG(p >= 0 && p < table.max_positions, "position beyond the rope table");
  }
}

void CheckStoreKv(const ConstMatrix& k, const ConstMatrix& v,
                  std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                  const Rotation& rotation) {
  CheckView(k);
  CheckView(v);
  CheckF32(k);
  CheckF32(v);
  CheckSameShape(k, v);
  CheckSequences(sequences, kv, k.rows);
  for (const SequenceSpan& s : sequences) {
    SKEIN_CHECK_MSG(s.keys < 0, "keys is for attention");
    SKEIN_CHECK(k.cols == int64_t{KvHeads(s.layout, *kv.spec)} * kv.spec->head_dim);
  }
  if (rotation.positions.empty()) return;
  CheckRope(k, rotation.positions, rotation.table);
  SKEIN_CHECK(rotation.table.head_dim == kv.spec->head_dim);
}

void CheckPagedAttention(const ConstMatrix& q, std::span<const SequenceSpan> sequences,
                         const KvLayerView& kv, const Matrix& out, const Matrix& lse) {
  CheckView(q);
  CheckView(out);
  CheckF32(q);
  CheckSameShape(q, out);
  CheckSequences(sequences, kv, q.rows);
  SKEIN_CHECK(q.cols % kv.spec->head_dim == 0);
  const int64_t heads = q.cols / kv.spec->head_dim;
  for (const SequenceSpan& s : sequences) {
    SKEIN_CHECK_MSG(heads % KvHeads(s.layout, *kv.spec) == 0, "heads not a multiple of kv_heads");
  }
  if (lse.empty()) return;
  CheckView(lse);
  CheckF32(lse);
  SKEIN_CHECK(lse.rows == q.rows && lse.cols == heads);
}

void CheckMergeAttention(const Matrix& out_a, const Matrix& lse_a, const ConstMatrix& out_b,
                         const ConstMatrix& lse_b) {
  for (const ConstMatrix& m : {ConstMatrix(out_a), ConstMatrix(lse_a), out_b, lse_b}) {
    CheckView(m);
    CheckF32(m);
  }
  CheckSameShape(out_a, out_b);
  CheckSameShape(lse_a, lse_b);
  SKEIN_CHECK(out_a.rows == lse_a.rows && lse_a.cols > 0 && out_a.cols % lse_a.cols == 0);
}

void CheckSwiGlu(const ConstMatrix& gate, const ConstMatrix& up, const Matrix& out) {
  for (const ConstMatrix& m : {gate, up, ConstMatrix(out)}) CheckView(m);
  CheckF32(gate);
  CheckF32(up);
  CheckSameShape(gate, up);
  CheckSameShape(gate, out);
}

void CheckAdd(const Matrix& x, const ConstMatrix& y) {
  CheckView(x);
  CheckView(y);
  CheckF32(x);
  CheckF32(y);
  CheckSameShape(x, y);
}

}  // namespace skein::engine
