// RowKernels over the Simd of the including file (include one simd_*.h and simd_math.h before).
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/lanes.h"

namespace skein::engine {
namespace {

void ConvertRow(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t n) {
  WithType(from, from_dtype, [&](const auto* in) {
    WithType(to, to_dtype, [&](auto* out) {
      ForLanes(
          n, [&](int64_t i) { Simd::Store(out + i, Simd::Load(in + i)); },
          [&](int64_t i, int rest) {
            Simd::StoreFirst(out + i, Simd::LoadFirst(in + i, rest), rest);
          });
    });
  });
}

void RmsNormRow(const float* x, const void* weight, DType weight_dtype, float eps, void* out,
                DType out_dtype, int64_t n) {
  // Four sums, so that a long row neither waits for one add nor loses low bits to one big sum.
  Simd::V sums[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
  int64_t i = 0;
  for (; i + 4 * Simd::kLanes <= n; i += 4 * Simd::kLanes) {
    for (int j = 0; j < 4; ++j) {
      const Simd::V v = Simd::Load(x + i + j * Simd::kLanes);
      sums[j] = Simd::Fma(v, v, sums[j]);
    }
  }
  ForLanes(
      n - i,
      [&](int64_t k) {
        const Simd::V v = Simd::Load(x + i + k);
        sums[0] = Simd::Fma(v, v, sums[0]);
      },
      [&](int64_t k, int rest) {
        const Simd::V v = Simd::LoadFirst(x + i + k, rest);
        sums[1] = Simd::Fma(v, v, sums[1]);
      });
  const float squares =
      Simd::ReduceAdd(Simd::Add(Simd::Add(sums[0], sums[1]), Simd::Add(sums[2], sums[3])));
  const Simd::V inverse = Simd::Set(1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps));
  WithType(weight, weight_dtype, [&](const auto* w) {
    WithType(out, out_dtype, [&](auto* o) {
      ForLanes(
          n,
          [&](int64_t k) {
            Simd::Store(o + k, Simd::Mul(Simd::Mul(Simd::Load(x + k), inverse), Simd::Load(w + k)));
          },
          [&](int64_t k, int rest) {
            const Simd::V v = Simd::Mul(Simd::LoadFirst(x + k, rest), inverse);
            Simd::StoreFirst(o + k, Simd::Mul(v, Simd::LoadFirst(w + k, rest)), rest);
          });
    });
  });
}

void RopeHead(float* head, const float* cos, const float* sin, int64_t half) {
  const auto rotate = [](Simd::V a, Simd::V b, Simd::V c, Simd::V s, Simd::V* out_a,
                         Simd::V* out_b) {
    *out_a = Simd::Sub(Simd::Mul(a, c), Simd::Mul(b, s));
    *out_b = Simd::Fma(b, c, Simd::Mul(a, s));
  };
  Simd::V a, b;
  ForLanes(
      half,
      [&](int64_t i) {
        rotate(Simd::Load(head + i), Simd::Load(head + half + i), Simd::Load(cos + i),
               Simd::Load(sin + i), &a, &b);
        Simd::Store(head + i, a);
        Simd::Store(head + half + i, b);
      },
      [&](int64_t i, int n) {
        rotate(Simd::LoadFirst(head + i, n), Simd::LoadFirst(head + half + i, n),
               Simd::LoadFirst(cos + i, n), Simd::LoadFirst(sin + i, n), &a, &b);
        Simd::StoreFirst(head + i, a, n);
        Simd::StoreFirst(head + half + i, b, n);
      });
}

SKEIN_INLINE Simd::V SwiGluLanes(Simd::V gate, Simd::V up) {
  const Simd::V grown = Exp(Simd::Sub(Simd::Zero(), gate));
  return Simd::Mul(Simd::Div(gate, Simd::Add(Simd::Set(1.0f), grown)), up);
}

void SwiGluRow(const float* gate, const float* up, void* out, DType out_dtype, int64_t n) {
  WithType(out, out_dtype, [&](auto* o) {
    ForLanes(
        n,
        [&](int64_t i) {
          Simd::Store(o + i, SwiGluLanes(Simd::Load(gate + i), Simd::Load(up + i)));
        },
        [&](int64_t i, int rest) {
          const Simd::V v =
              SwiGluLanes(Simd::LoadFirst(gate + i, rest), Simd::LoadFirst(up + i, rest));
          Simd::StoreFirst(o + i, v, rest);
        });
  });
}

void AddRow(float* x, const float* y, int64_t n) {
  ForLanes(
      n, [&](int64_t i) { Simd::Store(x + i, Simd::Add(Simd::Load(x + i), Simd::Load(y + i))); },
      [&](int64_t i, int rest) {
        const Simd::V v = Simd::Add(Simd::LoadFirst(x + i, rest), Simd::LoadFirst(y + i, rest));
        Simd::StoreFirst(x + i, v, rest);
      });
}

void MixRow(float* a, float share_a, const float* b, float share_b, int64_t n) {
  const Simd::V from_a = Simd::Set(share_a);
  const Simd::V from_b = Simd::Set(share_b);
  ForLanes(
      n,
      [&](int64_t i) {
        Simd::Store(a + i,
                    Simd::Fma(Simd::Load(a + i), from_a, Simd::Mul(Simd::Load(b + i), from_b)));
      },
      [&](int64_t i, int rest) {
        const Simd::V v = Simd::Mul(Simd::LoadFirst(b + i, rest), from_b);
        Simd::StoreFirst(a + i, Simd::Fma(Simd::LoadFirst(a + i, rest), from_a, v), rest);
      });
}

}  // namespace
}  // namespace skein::engine
