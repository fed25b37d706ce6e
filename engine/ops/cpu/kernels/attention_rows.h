// Code that both attention kernels share, over the Simd of the including file (include one simd_*.h
// and simd_math.h before): a unit's rows from queries to results, and its keys in chunks.
//
// FlashAttention-2 (Dao 2023, Algorithm 1) for one KV head: keys come in chunks of up to
// kAttentionChunkKeys, and every row keeps a running maximum and sum.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/lanes.h"
#include "engine/ops/cpu/kernels/packed_product.h"

namespace skein::engine {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// The unit's buffers in scratch. What is multiplied is float or BF16.
template <typename Query, typename Weight>
struct AttentionBuffers {
  int64_t rows = 0;
  int64_t dim = 0;            // head_dim rounded up to whole panels
  float* sums = nullptr;      // [rows, dim] of value * weight
  float* scores = nullptr;    // [rows, kAttentionChunkKeys]
  Query* queries = nullptr;   // [rows, dim], scaled
  Weight* weights = nullptr;  // [rows, kAttentionChunkKeys]
  Weight* keys = nullptr;     // panels of keys, when packed
  Weight* values = nullptr;   // panels of dimensions, when packed
  float* largest = nullptr;   // [rows]
  float* total = nullptr;     // [rows]
  void* zeros = nullptr;      // a key or value of zeros
};

template <typename T>
SKEIN_INLINE T* Carve(std::byte** scratch, int64_t count) {
  auto* begin = reinterpret_cast<T*>(*scratch);
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  *scratch += (bytes + 63) / 64 * 64;
  return begin;
}

template <typename Query, typename Weight>
SKEIN_INLINE AttentionBuffers<Query, Weight> CarveBuffers(const AttentionUnit& u,
                                                          std::byte* scratch) {
  AttentionBuffers<Query, Weight> b;
  b.rows = int64_t{u.tokens} * u.group;
  b.dim = (u.head_dim + kPanel - 1) / kPanel * kPanel;
  b.sums = Carve<float>(&scratch, b.rows * b.dim);
  b.scores = Carve<float>(&scratch, b.rows * kAttentionChunkKeys);
  b.queries = Carve<Query>(&scratch, b.rows * b.dim);
  b.weights = Carve<Weight>(&scratch, b.rows * kAttentionChunkKeys);
  b.keys = Carve<Weight>(&scratch, kAttentionChunkKeys * b.dim);
  b.values = Carve<Weight>(&scratch, kAttentionChunkKeys * b.dim);
  b.largest = Carve<float>(&scratch, b.rows);
  b.total = Carve<float>(&scratch, b.rows);
  b.zeros = Carve<float>(&scratch, b.dim);
  return b;
}

template <typename Query, typename Weight>
void StartRows(const AttentionUnit& u, const AttentionBuffers<Query, Weight>& b) {
  const Simd::V scale = Simd::Set(u.scale);
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* from = u.q + r / u.group * u.q_stride + r % u.group * u.head_dim;
    Query* to = b.queries + r * b.dim;
    ForLanes(
        u.head_dim, [&](int64_t i) { Simd::Store(to + i, Simd::Mul(Simd::Load(from + i), scale)); },
        [&](int64_t i, int n) {
          Simd::StoreFirst(to + i, Simd::Mul(Simd::LoadFirst(from + i, n), scale), n);
        });
    b.largest[r] = kMinusInfinity;
    b.total[r] = 0.0f;
  }
  auto* zeros = static_cast<float*>(b.zeros);
  for (int64_t i = 0; i < b.dim; ++i) zeros[i] = 0.0f;
}

// Where the keys and values of a chunk lie; those past its end are zeros.
template <typename Kv>
struct ChunkRows {
  const Kv* keys[kAttentionChunkKeys];
  const Kv* values[kAttentionChunkKeys];
};

template <typename Kv>
void FindRows(const AttentionUnit& u, int64_t first_key, int64_t keys, int64_t padded_keys,
              const void* zeros, ChunkRows<Kv>* rows) {
  const auto* key_base = static_cast<const Kv*>(u.keys);
  const auto* value_base = static_cast<const Kv*>(u.values);
  for (int64_t j = 0; j < keys;) {
    const int64_t position = first_key + j;
    int64_t in_block = position % u.block_tokens;
    int64_t offset =
        u.block_table[position / u.block_tokens] * u.block_stride + in_block * u.head_dim;
    for (; in_block < u.block_tokens && j < keys; ++in_block, ++j, offset += u.head_dim) {
      rows->keys[j] = key_base + offset;
      rows->values[j] = value_base + offset;
    }
  }
  for (int64_t j = keys; j < padded_keys; ++j) {
    rows->keys[j] = rows->values[j] = static_cast<const Kv*>(zeros);
  }
}

// The chunks of a unit one after the other. A chunk's rows are used in this order: its keys, its
// values, the next chunk's keys. So the rows used a little later are always known.
template <typename Kv>
class ChunkWalk {
 public:
  // `u` and `zeros` outlive this. Chunks are padded to a multiple of `multiple` keys.
  ChunkWalk(const AttentionUnit& u, const void* zeros, int64_t multiple)
      : u_(u),
        zeros_(zeros),
        multiple_(multiple),
        ahead_(kAheadBytes / (u.head_dim * static_cast<int64_t>(sizeof(Kv))) + 1) {
    if (done()) return;
    Find(u_.key_begin, &rows_[0]);
    for (int64_t j = 0; j < ahead_ && j < keys(); ++j) PrefetchRow(rows_[0].keys[j]);
  }
  bool done() const { return u_.key_begin + done_keys_ >= u_.key_end; }
  bool at_first() const { return done_keys_ == 0; }
  int64_t first_key() const { return u_.key_begin + done_keys_; }
  int64_t keys() const { return KeysAt(first_key()); }
  int64_t padded_keys() const { return Padded(keys()); }
  const ChunkRows<Kv>& rows() const { return rows_[current_]; }

  // Call once for each chunk, before Prefetch.
  void FindNext() {
    next_keys_ = 0;
    if (first_key() + kAttentionChunkKeys >= u_.key_end) return;
    next_keys_ = KeysAt(first_key() + kAttentionChunkKeys);
    Find(first_key() + kAttentionChunkKeys, &rows_[1 - current_]);
  }
  // Asks for the rows used a little after the `count` rows from `first` on: row j is key j of the
  // chunk, row keys() + j its value j.
  SKEIN_INLINE void Prefetch(int64_t first, int64_t count) const {
    const int64_t values_at = keys(), next_at = 2 * values_at, end = next_at + next_keys_;
    for (int64_t j = first + ahead_; j < first + ahead_ + count && j < end; ++j) {
      PrefetchRow(j < values_at ? rows().keys[j]
                  : j < next_at ? rows().values[j - values_at]
                                : rows_[1 - current_].keys[j - next_at]);
    }
  }
  void Step() {
    done_keys_ += kAttentionChunkKeys;
    current_ = 1 - current_;
  }

 private:
  // More than memory delivers in the latency of one request.
  static constexpr int64_t kAheadBytes = 8192;

  SKEIN_INLINE void PrefetchRow(const Kv* row) const {
    for (int64_t i = 0; i < u_.head_dim; i += 64 / static_cast<int64_t>(sizeof(Kv))) {
      __builtin_prefetch(row + i, 0, 2);
    }
  }
  int64_t KeysAt(int64_t first) const {
    const int64_t left = u_.key_end - first;
    return left < kAttentionChunkKeys ? left : int64_t{kAttentionChunkKeys};
  }
  int64_t Padded(int64_t keys) const { return (keys + multiple_ - 1) / multiple_ * multiple_; }
  void Find(int64_t first, ChunkRows<Kv>* rows) {
    FindRows(u_, first, KeysAt(first), Padded(KeysAt(first)), zeros_, rows);
  }

  const AttentionUnit& u_;
  const void* zeros_;
  const int64_t multiple_;
  const int64_t ahead_;  // rows
  int64_t done_keys_ = 0;
  int64_t next_keys_ = 0;
  int current_ = 0;
  ChunkRows<Kv> rows_[2];
};

// Turns `seen` scores of a row into weights (the rest of `padded` become 0) and updates its running
// maximum and sum; returns what older sums must be multiplied with.
template <typename Weight>
SKEIN_INLINE float SoftmaxRow(float* scores, Weight* weights, int64_t seen, int64_t padded,
                              float* largest, float* total) {
  const int64_t whole = (seen + Simd::kLanes - 1) / Simd::kLanes * Simd::kLanes;
  for (int64_t i = whole; i < padded; i += Simd::kLanes) Simd::Store(weights + i, Simd::Zero());
  if (seen <= 0) return 1.0f;
  for (int64_t i = seen; i < whole; ++i) scores[i] = kMinusInfinity;
  Simd::V most = Simd::Set(*largest);
  for (int64_t i = 0; i < whole; i += Simd::kLanes) most = Simd::Max(most, Simd::Load(scores + i));
  const float now_largest = Simd::ReduceMax(most);
  const Simd::V shift = Simd::Set(now_largest);
  Simd::V sum = Simd::Zero();
  for (int64_t i = 0; i < whole; i += Simd::kLanes) {
    const Simd::V weight = Exp(Simd::Sub(Simd::Load(scores + i), shift));
    sum = Simd::Add(sum, weight);
    Simd::Store(weights + i, weight);
  }
  float decay = 1.0f;
  if (now_largest != *largest) {
    Simd::StoreFirst(&decay, Exp(Simd::Set(*largest - now_largest)), 1);
  }
  *total = *total * decay + Simd::ReduceAdd(sum);
  *largest = now_largest;
  return decay;
}

SKEIN_INLINE void ZeroRow(float* row, int64_t n) {
  for (int64_t i = 0; i < n; i += Simd::kLanes) Simd::Store(row + i, Simd::Zero());
}

SKEIN_INLINE void ScaleRow(float* row, float by, int64_t n) {
  const Simd::V factor = Simd::Set(by);
  for (int64_t i = 0; i < n; i += Simd::kLanes) {
    Simd::Store(row + i, Simd::Mul(Simd::Load(row + i), factor));
  }
}

template <typename Query, typename Weight>
void SoftmaxChunk(const AttentionUnit& u, const AttentionBuffers<Query, Weight>& b,
                  int64_t first_key, int64_t keys, int64_t padded_keys) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t visible = u.position + r / u.group + 1 - first_key;
    const float decay =
        SoftmaxRow(b.scores + r * kAttentionChunkKeys, b.weights + r * kAttentionChunkKeys,
                   visible < keys ? visible : keys, padded_keys, b.largest + r, b.total + r);
    if (decay != 1.0f && first_key > u.key_begin) ScaleRow(b.sums + r * b.dim, decay, b.dim);
  }
}

template <typename Query, typename Weight>
void FinishRows(const AttentionUnit& u, const AttentionBuffers<Query, Weight>& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t t = r / u.group, g = r % u.group;
    const bool saw_any = b.total[r] != 0.0f;           // NaN if a score was
    if (!saw_any) ZeroRow(b.sums + r * b.dim, b.dim);  // a unit without keys wrote no sums
    const Simd::V inverse = Simd::Set(saw_any ? 1.0f / b.total[r] : 0.0f);
    const float* sums = b.sums + r * b.dim;
    // Adding 0 turns -0 into 0: which of the two a sum is depends on how many zeros padded it.
    const auto result = [&](Simd::V sum) { return Simd::Fma(sum, inverse, Simd::Zero()); };
    WithType(u.out, u.out_dtype, [&](auto* out) {
      auto* to = out + t * u.out_stride + g * u.head_dim;
      ForLanes(
          u.head_dim, [&](int64_t i) { Simd::Store(to + i, result(Simd::Load(sums + i))); },
          [&](int64_t i, int n) {
            Simd::StoreFirst(to + i, result(Simd::LoadFirst(sums + i, n)), n);
          });
    });
    if (u.lse != nullptr) {
      u.lse[t * u.lse_stride + g] =
          saw_any ? b.largest[r] + __builtin_logf(b.total[r]) : kMinusInfinity;
    }
  }
}

}  // namespace
}  // namespace skein::engine
