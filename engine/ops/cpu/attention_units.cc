#include "engine/ops/cpu/attention_units.h"

#include <algorithm>

#include "engine/ops/kv_address.h"

namespace skein::engine {
namespace {

// Rows of a tile: enough that packing a key costs little beside using it.
constexpr int kTileRows = 64;
// A part of a split tile has at least this many keys: its start and its merge cost little beside.
constexpr int64_t kPartKeysMin = 512;

size_t WindowBytes(int64_t rows, int64_t head_dim) {
  return static_cast<size_t>(2 * rows * (head_dim + 1)) * sizeof(float);
}

int64_t RowsOf(const AttentionUnit& u) { return int64_t{u.tokens} * u.group; }

// In units of one row meeting one key; packing a key costs about as much as four rows.
int64_t CostOf(const AttentionUnit& u) { return (RowsOf(u) + 4) * (u.key_end - u.key_begin); }

void* ElementAt(void* data, DType dtype, int64_t index) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(BytesOf(dtype));
}

}  // namespace

void AttentionUnits::Build(const ConstMatrix& q, std::span<const SequenceSpan> sequences,
                           const KvLayerView& kv, float scale, const Matrix& out, const Matrix& lse,
                           int64_t window, int threads) {
  window_ = window;
  units_.clear();
  parts_.clear();
  split_tiles_.clear();
  for (const SequenceSpan& sequence : sequences) AddTiles(q, sequence, kv, scale, out, lse);
  SplitLongTiles();
  ShareUnits(threads);
  scratch_bytes_ = 0;
  for (const AttentionUnit& u : units_) {
    scratch_bytes_ = std::max(scratch_bytes_, AttentionScratchBytes(RowsOf(u), u.head_dim) +
                                                  WindowBytes(RowsOf(u), u.head_dim));
  }
}

void AttentionUnits::AddTiles(const ConstMatrix& q, const SequenceSpan& sequence,
                              const KvLayerView& kv, float scale, const Matrix& out,
                              const Matrix& lse) {
  const KvSpec& spec = *kv.spec;
  const int kv_heads = KvHeads(sequence.layout, spec);
  const int group = static_cast<int>(q.cols / spec.head_dim) / kv_heads;
  const int64_t tile_tokens = std::max(1, kTileRows / group);
  for (int head = 0; head < kv_heads; ++head) {
    const int64_t column = int64_t{head} * group * spec.head_dim;
    for (int64_t token = 0; token < sequence.token_count; token += tile_tokens) {
      const int64_t row = sequence.token_begin + token;
      AttentionUnit u;
      u.q = static_cast<const float*>(q.data) + row * q.stride + column;
      u.q_stride = q.stride;
      u.out = ElementAt(out.data, out.dtype, row * out.stride + column);
      u.out_dtype = out.dtype;
      u.out_stride = out.stride;
      if (!lse.empty()) {
        u.lse = static_cast<float*>(lse.data) + row * lse.stride + head * group;
        u.lse_stride = lse.stride;
      }
      u.tokens = static_cast<int>(std::min(tile_tokens, sequence.token_count - token));
      u.group = group;
      u.head_dim = spec.head_dim;
      u.scale = scale;
      const bool sees_all = sequence.keys >= 0;
      u.position = sees_all ? sequence.keys : sequence.position + token;
      u.key_end = sees_all ? sequence.keys : u.position + u.tokens;
      u.keys = ElementAt(kv.base, spec.dtype,
                         KvElementOffset(spec, sequence.layout, 0, KvSide::kKey, head, 0));
      u.values = ElementAt(kv.base, spec.dtype,
                           KvElementOffset(spec, sequence.layout, 0, KvSide::kValue, head, 0));
      u.kv_dtype = spec.dtype;
      u.block_table = sequence.block_table.data();
      u.block_tokens = TokensPerBlock(sequence.layout, spec);
      u.block_stride = spec.BlockBytes() / static_cast<int64_t>(BytesOf(spec.dtype));
      u.exact_rows = window_ != 0;
      units_.push_back(u);
      const bool alone = sequence.token_count <= tile_tokens;
      const int64_t parts =
          window_ != 0 ? (u.key_end + window_ - 1) / window_ : u.key_end / kPartKeysMin;
      parts_.push_back(alone ? static_cast<int>(std::max<int64_t>(1, parts)) : 1);
    }
  }
}

void AttentionUnits::SplitLongTiles() {
  int64_t floats = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (parts_[i] > 1) floats += parts_[i] * RowsOf(units_[i]) * (units_[i].head_dim + 1);
  }
  if (floats == 0) return;
  float* partial = partials_.GetArray<float>(floats);
  std::vector<AttentionUnit> units;
  for (size_t i = 0; i < units_.size(); ++i) {
    const AttentionUnit& whole = units_[i];
    const int64_t parts = parts_[i], rows = RowsOf(whole);
    if (parts == 1) {
      units.push_back(whole);
      continue;
    }
    float* lse = partial + parts * rows * whole.head_dim;
    split_tiles_.push_back({whole, partial, lse, static_cast<int>(parts)});
    for (int64_t part = 0; part < parts; ++part) {
      AttentionUnit u = whole;
      u.key_begin = window_ != 0 ? window_ * part : whole.key_end * part / parts;
      u.key_end = window_ != 0 ? std::min(whole.key_end, window_ * (part + 1))
                               : whole.key_end * (part + 1) / parts;
      u.out = partial + part * rows * u.head_dim;
      u.out_dtype = DType::kF32;
      u.out_stride = int64_t{u.group} * u.head_dim;
      u.lse = lse + part * rows;
      u.lse_stride = u.group;
      units.push_back(u);
    }
    partial = lse + parts * rows;
  }
  units_ = std::move(units);
}

void AttentionUnits::ShareUnits(int threads) {
  int64_t total = 0;
  for (const AttentionUnit& u : units_) total += CostOf(u);
  share_ends_.assign(static_cast<size_t>(threads), units_.size());
  int64_t done = 0;
  size_t share = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    // A unit belongs to the share in which its middle falls.
    const int64_t middle = done + CostOf(units_[i]) / 2;
    while (share + 1 < share_ends_.size() &&
           middle * threads >= total * static_cast<int64_t>(share + 1)) {
      share_ends_[share++] = i;
    }
    done += CostOf(units_[i]);
  }
}

std::pair<size_t, size_t> AttentionUnits::UnitsOf(int index) const {
  const auto i = static_cast<size_t>(index);
  return {i == 0 ? 0 : share_ends_[i - 1], share_ends_[i]};
}

}  // namespace skein::engine
