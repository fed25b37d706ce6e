// AttentionUnit over the Simd of the including file (include one simd_*.h, simd_math.h and
// packed_product.h before).
//
// FlashAttention-2 (Dao 2023, Algorithm 1) for one KV head: keys come in chunks of up to
// kAttentionChunkKeys, gathered from their blocks into packed panels, and every row keeps a running
// maximum and sum. The rows are all (token, query head) of the unit, so a key is read once for its
// whole group. With bf16 KV and a CPU that multiplies bf16 pairs, queries and weights are rounded
// to bf16; otherwise everything is widened to f32. Sums are f32 in both.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/lanes.h"

namespace skein::engine {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// The unit's buffers in scratch. `Element` is what is multiplied: float, or BF16 in pairs.
template <typename Element>
struct AttentionBuffers {
  int64_t rows = 0;
  int64_t dim = 0;             // head_dim rounded up to whole panels
  float* sums = nullptr;       // [rows, dim] of value * weight
  float* scores = nullptr;     // [rows, kAttentionChunkKeys]
  Element* queries = nullptr;  // [rows, dim], scaled
  Element* weights = nullptr;  // [rows, kAttentionChunkKeys]
  Element* keys = nullptr;     // panels of keys
  Element* values = nullptr;   // panels of dimensions
  float* largest = nullptr;    // [rows]
  float* total = nullptr;      // [rows]
  void* zeros = nullptr;       // a key or value of zeros
};

template <typename T>
SKEIN_INLINE T* Carve(std::byte** scratch, int64_t count) {
  auto* begin = reinterpret_cast<T*>(*scratch);
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  *scratch += (bytes + 63) / 64 * 64;
  return begin;
}

template <typename Element>
SKEIN_INLINE AttentionBuffers<Element> CarveBuffers(const AttentionUnit& u, std::byte* scratch) {
  AttentionBuffers<Element> b;
  b.rows = int64_t{u.tokens} * u.group;
  b.dim = (u.head_dim + kPanel - 1) / kPanel * kPanel;
  b.sums = Carve<float>(&scratch, b.rows * b.dim);
  b.scores = Carve<float>(&scratch, b.rows * kAttentionChunkKeys);
  b.queries = Carve<Element>(&scratch, b.rows * b.dim);
  b.weights = Carve<Element>(&scratch, b.rows * kAttentionChunkKeys);
  b.keys = Carve<Element>(&scratch, kAttentionChunkKeys * b.dim);
  b.values = Carve<Element>(&scratch, kAttentionChunkKeys * b.dim);
  b.largest = Carve<float>(&scratch, b.rows);
  b.total = Carve<float>(&scratch, b.rows);
  b.zeros = Carve<float>(&scratch, b.dim);
  return b;
}

template <typename Element>
void StartRows(const AttentionUnit& u, const AttentionBuffers<Element>& b) {
  const Simd::V scale = Simd::Set(u.scale);
  for (int64_t r = 0; r < b.rows; ++r) {
    const float* from = u.q + r / u.group * u.q_stride + r % u.group * u.head_dim;
    Element* to = b.queries + r * b.dim;
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

// Panels of keys: lanes are keys, steps are units of head_dim. `units`: how many units a key has,
// read with `load(row pointer, first unit, count)`.
template <typename Kv, typename Load>
SKEIN_INLINE void PackKeys(const Kv* const* rows, int64_t padded_keys, int64_t units, float* to,
                           const Load& load) {
  for (int64_t first = 0; first < padded_keys; first += Simd::kLanes) {
    float* panel = to + first / kPanel * units * kPanel + first % kPanel;
    for (int64_t unit = 0; unit < units; unit += Simd::kLanes) {
      const int count = static_cast<int>(units - unit < Simd::kLanes ? units - unit : Simd::kLanes);
      Simd::V lanes[Simd::kLanes];
      for (int j = 0; j < Simd::kLanes; ++j) lanes[j] = load(rows[first + j], unit, count);
      Simd::Transpose(lanes);
      for (int i = 0; i < count; ++i) Simd::Store(panel + (unit + i) * kPanel, lanes[i]);
    }
  }
}

template <typename Kv>
void PackChunk(const AttentionUnit& u, const ChunkRows<Kv>& rows, int64_t padded_keys,
               const AttentionBuffers<float>& b) {
  PackKeys(rows.keys, padded_keys, u.head_dim, b.keys, [](const Kv* row, int64_t unit, int count) {
    return count == Simd::kLanes ? Simd::Load(row + unit) : Simd::LoadFirst(row + unit, count);
  });
  for (int64_t first = 0; first < b.dim; first += Simd::kLanes) {
    float* panel = b.values + first / kPanel * padded_keys * kPanel + first % kPanel;
    const int64_t left = u.head_dim - first;
    const int count = static_cast<int>(left < 0 ? 0 : left < Simd::kLanes ? left : Simd::kLanes);
    for (int64_t j = 0; j < padded_keys; ++j) {
      Simd::Store(panel + j * kPanel, count == Simd::kLanes
                                          ? Simd::Load(rows.values[j] + first)
                                          : Simd::LoadFirst(rows.values[j] + first, count));
    }
  }
}

// bf16 pairs: along head_dim for keys, along keys for values.
template <typename S>
void PackChunkPairs(const AttentionUnit& u, const ChunkRows<BF16>& rows, int64_t padded_keys,
                    const AttentionBuffers<BF16>& b) {
  PackKeys(rows.keys, padded_keys, u.head_dim / 2, reinterpret_cast<float*>(b.keys),
           [](const BF16* row, int64_t unit, int count) {
             return S::LoadFirst(reinterpret_cast<const float*>(row) + unit, count);
           });
  const int64_t steps = padded_keys / 2;
  for (int64_t first = 0; first < b.dim; first += S::kLanes) {
    BF16* panel = b.values + 2 * (first / kPanel * steps * kPanel + first % kPanel);
    const int64_t left = u.head_dim - first;
    const int count = static_cast<int>(left < 0 ? 0 : left < S::kLanes ? left : S::kLanes);
    for (int64_t s = 0; s < steps; ++s) {
      S::StoreInterleaved(panel + 2 * s * kPanel, rows.values[2 * s] + first,
                          rows.values[2 * s + 1] + first, count);
    }
  }
}

// Turns `seen` scores of a row into weights (the rest of `padded` become 0) and updates its running
// maximum and sum; returns what older sums must be multiplied with.
template <typename Element>
SKEIN_INLINE float SoftmaxRow(float* scores, Element* weights, int64_t seen, int64_t padded,
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

template <typename Element>
void SoftmaxChunk(const AttentionUnit& u, const AttentionBuffers<Element>& b, int64_t first_key,
                  int64_t keys, int64_t padded_keys) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t visible = u.position + r / u.group + 1 - first_key;
    const float decay =
        SoftmaxRow(b.scores + r * kAttentionChunkKeys, b.weights + r * kAttentionChunkKeys,
                   visible < keys ? visible : keys, padded_keys, b.largest + r, b.total + r);
    if (decay != 1.0f && first_key > u.key_begin) ScaleRow(b.sums + r * b.dim, decay, b.dim);
  }
}

template <typename Element>
void FinishRows(const AttentionUnit& u, const AttentionBuffers<Element>& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const int64_t t = r / u.group, g = r % u.group;
    const bool saw_any = b.total[r] > 0.0f;
    const Simd::V inverse = Simd::Set(saw_any ? 1.0f / b.total[r] : 0.0f);
    const float* sums = b.sums + r * b.dim;
    WithType(u.out, u.out_dtype, [&](auto* out) {
      auto* to = out + t * u.out_stride + g * u.head_dim;
      ForLanes(
          u.head_dim,
          [&](int64_t i) { Simd::Store(to + i, Simd::Mul(Simd::Load(sums + i), inverse)); },
          [&](int64_t i, int n) {
            Simd::StoreFirst(to + i, Simd::Mul(Simd::LoadFirst(sums + i, n), inverse), n);
          });
    });
    if (u.lse != nullptr) {
      u.lse[t * u.lse_stride + g] =
          saw_any ? b.largest[r] + __builtin_logf(b.total[r]) : kMinusInfinity;
    }
  }
}

template <typename Units, typename Kv, typename Pack>
SKEIN_INLINE void AttendChunks(const AttentionUnit& u, std::byte* scratch, const Pack& pack) {
  using Element = typename Units::Element;
  const AttentionBuffers<Element> b = CarveBuffers<Element>(u, scratch);
  StartRows(u, b);
  if (u.key_begin >= u.key_end) ZeroRow(b.sums, b.rows * b.dim);
  for (int64_t first = u.key_begin; first < u.key_end; first += kAttentionChunkKeys) {
    const int64_t left = u.key_end - first;
    const int64_t keys = left < kAttentionChunkKeys ? left : int64_t{kAttentionChunkKeys};
    const int64_t panels = (keys + kPanel - 1) / kPanel;
    const int64_t padded = panels * kPanel;
    ChunkRows<Kv> rows;
    FindRows(u, first, keys, padded, b.zeros, &rows);
    pack(rows, padded, b);
    const int64_t key_steps = u.head_dim / Units::kPerUnit;
    MultiplyPacked<Units>(b.rows, b.queries, b.dim, b.keys, panels, key_steps, key_steps, b.scores,
                          kAttentionChunkKeys, false);
    SoftmaxChunk(u, b, first, keys, padded);
    const int64_t value_steps = padded / Units::kPerUnit;
    MultiplyPacked<Units>(b.rows, b.weights, kAttentionChunkKeys, b.values, b.dim / kPanel,
                          value_steps, value_steps, b.sums, b.dim, first > u.key_begin);
  }
  FinishRows(u, b);
}

template <typename Kv>
void AttendWidened(const AttentionUnit& u, std::byte* scratch) {
  AttendChunks<FloatUnits, Kv>(
      u, scratch, [&](const ChunkRows<Kv>& rows, int64_t padded, const AttentionBuffers<float>& b) {
        PackChunk(u, rows, padded, b);
      });
}

template <typename S>
void Attend(const AttentionUnit& u, std::byte* scratch) {
  if constexpr (S::kHasPairs) {
    if (u.kv_dtype == DType::kBF16 && u.head_dim % 2 == 0) {
      return AttendChunks<PairUnits<S>, BF16>(
          u, scratch,
          [&](const ChunkRows<BF16>& rows, int64_t padded, const AttentionBuffers<BF16>& b) {
            PackChunkPairs<S>(u, rows, padded, b);
          });
    }
  }
  if (u.kv_dtype == DType::kF32) return AttendWidened<float>(u, scratch);
  if (u.kv_dtype == DType::kBF16) return AttendWidened<BF16>(u, scratch);
  AttendWidened<F16>(u, scratch);
}

}  // namespace
}  // namespace skein::engine
