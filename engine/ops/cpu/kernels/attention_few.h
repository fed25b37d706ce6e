// Attention of a unit with few rows (decode), over the Simd of the including file (include one
// simd_*.h and simd_math.h before).
//
// Keys and values are used where they lie: gathering them would cost more than the few rows need.
// Some keys meet up to kFewRows rows at a time, so the sums stay in registers. How a key is
// multiplied by a row is a "way": InPlace, or one of attention_chains.h.
#pragma once

#include <type_traits>

#include "engine/ops/cpu/kernels/attention_rows.h"
#include "engine/ops/cpu/kernels/dot.h"

namespace skein::engine {
namespace {

constexpr int kValuesAtOnce = 16;  // between two prefetches

// scores[r][j] = queries[r] · keys[j] for kRows rows and four keys.
template <typename Dot, int kRows>
SKEIN_INLINE void ScoreKeys(const typename Dot::X* queries, int64_t query_stride,
                            const typename Dot::W* const* keys, int64_t dim, float* scores) {
  constexpr int kKeysAtOnce = 4;
  Simd::V acc[kRows][kKeysAtOnce];
  for (auto& row : acc) {
    for (auto& sum : row) sum = Simd::Zero();
  }
  int64_t i = 0;
  for (; i + Dot::kStep <= dim; i += Dot::kStep) {
    typename Dot::Register key[kKeysAtOnce];
    for (int j = 0; j < kKeysAtOnce; ++j) key[j] = Dot::Load(keys[j] + i);
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Register query = Dot::Load(queries + r * query_stride + i);
      for (int j = 0; j < kKeysAtOnce; ++j) acc[r][j] = Dot::Sum(acc[r][j], query, key[j]);
    }
  }
  if (i < dim) {
    const int rest = static_cast<int>(dim - i);
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Register query = Dot::LoadFirst(queries + r * query_stride + i, rest);
      for (int j = 0; j < kKeysAtOnce; ++j) {
        acc[r][j] = Dot::Sum(acc[r][j], query, Dot::LoadFirst(keys[j] + i, rest));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Simd::ReduceFour(acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * kAttentionChunkKeys);
  }
}

// sums[r] += Σ weights[r][j] * values[j] over `keys` values, for kRows rows and the kVectors
// registers of dimensions from `first` on (of the last one, `last_lanes` lanes).
template <typename Kv, int kRows, int kVectors>
SKEIN_INLINE void AddValues(const float* weights, const Kv* const* values, int64_t keys,
                            int64_t first, int last_lanes, float* sums, int64_t sum_stride) {
  Simd::V acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = Simd::Load(sums + r * sum_stride + first + v * Simd::kLanes);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    const Kv* value = values[j] + first;
    for (int v = 0; v < kVectors; ++v) {
      const Kv* from = value + v * Simd::kLanes;
      const Simd::V lanes = v + 1 == kVectors && last_lanes < Simd::kLanes
                                ? Simd::LoadFirst(from, last_lanes)
                                : Simd::Load(from);
      for (int r = 0; r < kRows; ++r) {
        acc[r][v] = Simd::Fma(Simd::Set(weights[r * kAttentionChunkKeys + j]), lanes, acc[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      Simd::Store(sums + r * sum_stride + first + v * Simd::kLanes, acc[r][v]);
    }
  }
}

template <typename Kv, int kRows>
SKEIN_INLINE void AddAllValues(int64_t head_dim, const float* weights, const Kv* const* values,
                               int64_t keys, float* sums, int64_t sum_stride) {
  constexpr int kWide = 4 * Simd::kLanes;
  int64_t first = 0;
  for (; first + kWide <= head_dim; first += kWide) {
    AddValues<Kv, kRows, 4>(weights, values, keys, first, Simd::kLanes, sums, sum_stride);
  }
  for (; first < head_dim; first += Simd::kLanes) {
    const int64_t left = head_dim - first;
    AddValues<Kv, kRows, 1>(weights, values, keys, first,
                            static_cast<int>(left < Simd::kLanes ? left : Simd::kLanes), sums,
                            sum_stride);
  }
}

// Calls body(first row, number of rows as a constant) over [0, rows), up to kMost rows at a time.
template <int kMost, typename Body>
SKEIN_INLINE void ForRowTiles(int64_t rows, int64_t first, const Body& body) {
  for (; first + kMost <= rows; first += kMost) body(first, std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) {
    if (first < rows) ForRowTiles<kMost - 1>(rows, first, body);
  }
}

// Values widened to f32, where they lie.
template <typename KvElement>
struct WidenedValues {
  using Kv = KvElement;
  using Weight = float;
  template <int kRows>
  static SKEIN_INLINE void AddValues(int64_t head_dim, const float* weights,
                                     const Kv* const* values, int64_t keys, float* sums,
                                     int64_t sum_stride) {
    AddAllValues<Kv, kRows>(head_dim, weights, values, keys, sums, sum_stride);
  }
};

// Dot products of rows as they lie: the fastest.
template <typename Dot>
struct InPlace : WidenedValues<typename Dot::W> {
  using Query = typename Dot::X;
  static constexpr int kKeysAtOnce = 4;
  template <int kRows>
  static SKEIN_INLINE void Score(const Query* queries, int64_t query_stride,
                                 const typename Dot::W* const* keys, int64_t dim, float* scores) {
    ScoreKeys<Dot, kRows>(queries, query_stride, keys, dim, scores);
  }
};

template <typename Way>
void AttendFew(const AttentionUnit& u, std::byte* scratch) {
  using Kv = typename Way::Kv;
  constexpr int kAtOnce = Way::kKeysAtOnce;
  const auto b = CarveBuffers<typename Way::Query, typename Way::Weight>(u, scratch);
  StartRows(u, b);
  ZeroRow(b.sums, b.rows * b.dim);
  ChunkWalk<Kv> walk(u, b.zeros, Simd::kLanes > kAtOnce ? Simd::kLanes : kAtOnce);
  for (; !walk.done(); walk.Step()) {
    walk.FindNext();
    const ChunkRows<Kv>& rows = walk.rows();
    const int64_t keys = walk.keys();
    for (int64_t j = 0; j < walk.padded_keys(); j += kAtOnce) {
      walk.Prefetch(j, kAtOnce);
      ForRowTiles<Simd::kFewRows>(b.rows, 0, [&](int64_t r, auto count) {
        Way::template Score<count>(b.queries + r * b.dim, b.dim, rows.keys + j, u.head_dim,
                                   b.scores + r * kAttentionChunkKeys + j);
      });
    }
    SoftmaxChunk(u, b, walk.first_key(), keys, walk.padded_keys());
    for (int64_t j = 0; j < keys; j += kValuesAtOnce) {
      walk.Prefetch(keys + j, kValuesAtOnce);
      const int64_t left = keys - j < kValuesAtOnce ? keys - j : int64_t{kValuesAtOnce};
      ForRowTiles<Simd::kFewRows>(b.rows, 0, [&](int64_t r, auto count) {
        Way::template AddValues<count>(u.head_dim, b.weights + r * kAttentionChunkKeys + j,
                                       rows.values + j, left, b.sums + r * b.dim, b.dim);
      });
    }
  }
  FinishRows(u, b);
}

}  // namespace
}  // namespace skein::engine
