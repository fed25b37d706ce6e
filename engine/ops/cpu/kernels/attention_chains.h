// Attention of a unit with few rows, bit for bit what attention_tile.h computes for a row, over the
// Simd of the including file (include one simd_*.h and simd_math.h before).
//
// In a tile a score is one chain along head_dim, since lanes are keys, and a sum is one chain along
// the keys. Here keys are transposed in registers and summed in the same chains. Values are added
// in that order in both kernels. Padded keys add 0 * 0, which can only turn a sum of -0 into 0;
// FinishRows makes both 0.
#pragma once

#include "engine/ops/cpu/kernels/attention_few.h"
#include "engine/ops/cpu/kernels/turned.h"

namespace skein::engine {
namespace {

// scores[r][j] = queries[r] · keys[j] for kRows rows and kPanel keys.
template <typename Units, int kRows, typename Kv>
SKEIN_INLINE void ScoreChains(const typename Units::Element* queries, int64_t query_stride,
                              const Kv* const* keys, int64_t dim, float* scores) {
  Simd::V acc[2][kRows] = {};
  ForGroups<Units, Kv>(dim, [&](auto turn, int64_t i, int count) SKEIN_LAMBDA {
    constexpr int kElements = decltype(turn)::kElements;
    for (int h = 0; h < 2; ++h) {
      const Kv* const* half = keys + h * Simd::kLanes;
      const auto row_at = [half, i](int row) SKEIN_LAMBDA { return half[row] + i; };
      if (count == kElements) {
        turn.Load(row_at);
      } else {
        turn.LoadFirst(row_at, count);
      }
      turn.ForSteps([&](int s, Simd::V key) SKEIN_LAMBDA {
        if (count < kElements && s * Units::kPerUnit >= count) return;
        for (int r = 0; r < kRows; ++r) {
          acc[h][r] = Units::Sum(
              acc[h][r], Units::SpreadA(queries + r * query_stride + i + s * Units::kPerUnit),
              Units::FromBits(key));
        }
      });
      // Without this, the compiler spills the queries' values for the next keys to the stack.
      asm volatile("" ::: "memory");
    }
  });
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      Simd::Store(scores + r * kAttentionChunkKeys + h * Simd::kLanes, acc[h][r]);
    }
  }
}

template <typename Units, typename KvElement>
struct ChainScores {
  using Query = typename Units::Element;
  static constexpr int kKeysAtOnce = kPanel;
  template <int kRows>
  static SKEIN_INLINE void Score(const Query* queries, int64_t query_stride,
                                 const KvElement* const* keys, int64_t dim, float* scores) {
    ScoreChains<Units, kRows>(queries, query_stride, keys, dim, scores);
  }
};

// f32 by anything widened to f32.
template <typename KvElement>
struct WidenedChains : ChainScores<FloatUnits, KvElement>, WidenedValues<KvElement> {};

// bf16 in pairs: along head_dim for keys, along keys for values.
template <typename S>
struct PairChains : ChainScores<PairUnits<S>, BF16> {
  using Kv = BF16;
  using Weight = BF16;
  // Of an odd last value the partner is a row of zeros, and its weight is 0.
  template <int kRows>
  static SKEIN_INLINE void AddValues(int64_t head_dim, const BF16* weights,
                                     const BF16* const* values, int64_t keys, float* sums,
                                     int64_t sum_stride) {
    for (int64_t first = 0; first < head_dim; first += kPanel) {
      const int count = head_dim - first < kPanel ? static_cast<int>(head_dim - first) : kPanel;
      AddPanel<kRows>(weights, values, keys, first, count, sums + first, sum_stride);
    }
  }

 private:
  // `count` dimensions from `first` on; sums have room for kPanel.
  template <int kRows>
  static SKEIN_INLINE void AddPanel(const BF16* weights, const BF16* const* values, int64_t keys,
                                    int64_t first, int count, float* sums, int64_t sum_stride) {
    Simd::V acc[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        acc[r][h] = Simd::Load(sums + r * sum_stride + h * Simd::kLanes);
      }
    }
    for (int64_t j = 0; j < keys; j += 2) {
      typename S::Pairs pairs[2];
      S::LoadInterleaved(values[j] + first, values[j + 1] + first, count, pairs);
      for (int r = 0; r < kRows; ++r) {
        const typename S::Pairs weight = S::SetPair(weights + r * kAttentionChunkKeys + j);
        for (int h = 0; h < 2; ++h) acc[r][h] = S::DotPairs(acc[r][h], weight, pairs[h]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        Simd::Store(sums + r * sum_stride + h * Simd::kLanes, acc[r][h]);
      }
    }
  }
};

}  // namespace
}  // namespace skein::engine
