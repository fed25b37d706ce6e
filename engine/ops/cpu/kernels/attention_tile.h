// Attention of a unit with many rows, over the Simd of the including file (include one simd_*.h and
// simd_math.h before).
//
// A chunk's keys and values are gathered from their blocks into packed panels, once for all rows;
// scores and sums are then two small products. With bf16 KV and a CPU that multiplies bf16 pairs,
// queries and weights are rounded to bf16; otherwise everything is widened to f32. Sums are f32.
#pragma once

#include "engine/ops/cpu/kernels/attention_rows.h"

namespace skein::engine {
namespace {

// Panels of keys: lanes are keys, steps are units of head_dim. `units`: how many units a key has,
// read with `load(row pointer, first unit, count)`.
template <typename Kv, typename Load>
SKEIN_INLINE void PackKeys(const ChunkWalk<Kv>& walk, int64_t units, float* to, const Load& load) {
  const Kv* const* rows = walk.rows().keys;
  for (int64_t first = 0; first < walk.padded_keys(); first += Simd::kLanes) {
    walk.Prefetch(first, Simd::kLanes);
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
void PackChunk(const AttentionUnit& u, const ChunkWalk<Kv>& walk,
               const AttentionBuffers<float, float>& b) {
  const ChunkRows<Kv>& rows = walk.rows();
  const int64_t padded_keys = walk.padded_keys();
  PackKeys(walk, u.head_dim, b.keys, [](const Kv* row, int64_t unit, int count) {
    return count == Simd::kLanes ? Simd::Load(row + unit) : Simd::LoadFirst(row + unit, count);
  });
  for (int64_t first = 0; first < b.dim; first += Simd::kLanes) {
    float* panel = b.values + first / kPanel * padded_keys * kPanel + first % kPanel;
    const int64_t left = u.head_dim - first;
    const int count = static_cast<int>(left < 0 ? 0 : left < Simd::kLanes ? left : Simd::kLanes);
    for (int64_t j = 0; j < padded_keys; ++j) {
      if (first == 0) walk.Prefetch(walk.keys() + j, 1);
      Simd::Store(panel + j * kPanel, count == Simd::kLanes
                                          ? Simd::Load(rows.values[j] + first)
                                          : Simd::LoadFirst(rows.values[j] + first, count));
    }
  }
}

// bf16 pairs: along head_dim for keys, along keys for values.
template <typename S>
void PackChunkPairs(const AttentionUnit& u, const ChunkWalk<BF16>& walk,
                    const AttentionBuffers<BF16, BF16>& b) {
  const ChunkRows<BF16>& rows = walk.rows();
  PackKeys(walk, u.head_dim / 2, reinterpret_cast<float*>(b.keys),
           [](const BF16* row, int64_t unit, int count) {
             const auto* pairs = reinterpret_cast<const float*>(row) + unit;
             return count == S::kLanes ? S::Load(pairs) : S::LoadFirst(pairs, count);
           });
  const int64_t steps = walk.padded_keys() / 2;
  for (int64_t first = 0; first < b.dim; first += kPanel) {
    BF16* panel = b.values + 2 * first * steps;
    const int count = u.head_dim - first < kPanel ? static_cast<int>(u.head_dim - first) : kPanel;
    for (int64_t s = 0; s < steps; ++s) {
      if (first == 0) walk.Prefetch(walk.keys() + 2 * s, 2);
      S::StoreInterleaved(panel + 2 * s * kPanel, rows.values[2 * s] + first,
                          rows.values[2 * s + 1] + first, count);
    }
  }
}

template <typename Units, typename Kv, typename Pack>
SKEIN_INLINE void AttendTile(const AttentionUnit& u, std::byte* scratch, const Pack& pack) {
  using Element = typename Units::Element;
  const auto b = CarveBuffers<Element, Element>(u, scratch);
  StartRows(u, b);
  ChunkWalk<Kv> walk(u, b.zeros, kPanel);
  for (; !walk.done(); walk.Step()) {
    walk.FindNext();
    pack(walk, b);
    const int64_t padded = walk.padded_keys();
    const int64_t key_steps = u.head_dim / Units::kPerUnit;
    MultiplyPacked<Units>(b.rows, b.queries, b.dim, b.keys, padded / kPanel, key_steps, b.scores,
                          kAttentionChunkKeys, false);
    SoftmaxChunk(u, b, walk.first_key(), walk.keys(), padded);
    MultiplyPacked<Units>(b.rows, b.weights, kAttentionChunkKeys, b.values, b.dim / kPanel,
                          padded / Units::kPerUnit, b.sums, b.dim, !walk.at_first());
  }
  FinishRows(u, b);
}

template <typename Kv>
void AttendTileWidened(const AttentionUnit& u, std::byte* scratch) {
  AttendTile<FloatUnits, Kv>(
      u, scratch, [&](const ChunkWalk<Kv>& walk, const AttentionBuffers<float, float>& b) {
        PackChunk(u, walk, b);
      });
}

template <typename S>
void AttendTilePairs(const AttentionUnit& u, std::byte* scratch) {
  AttendTile<PairUnits<S>, BF16>(
      u, scratch, [&](const ChunkWalk<BF16>& walk, const AttentionBuffers<BF16, BF16>& b) {
        PackChunkPairs<S>(u, walk, b);
      });
}

}  // namespace
}  // namespace skein::engine
