// Functions of a whole register, written over the Simd of the file that includes this (include one
// simd_*.h before). Internal linkage, as everything made of Simd.
#pragma once

namespace skein::engine {
namespace {

// e^x with a relative error below 2e-7 for x in [-87, 88]; 0 below -87.3 (-inf too), e^88 above 88;
// NaN for NaN, whatever its bits. Min and Max give their second operand if one is NaN.
// Cephes expf: x = n ln 2 + r with ln 2 split in two, and its degree-5 polynomial for
// (e^r - 1 - r) / r² on |r| ≤ ln 2 / 2.
SKEIN_INLINE Simd::V Exp(Simd::V x) {
  using S = Simd;
  const S::V lowest = S::Set(-87.3f);
  const S::V clamped = S::Max(lowest, S::Min(S::Set(88.0f), x));
  const S::V rounder = S::Set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const S::V biased = S::Fma(clamped, S::Set(1.44269504088896341f), rounder);
  const S::V n = S::Sub(biased, rounder);
  S::V r = S::Fma(n, S::Set(-0.693359375f), clamped);
  r = S::Fma(n, S::Set(2.12194440e-4f), r);
  S::V p = S::Set(1.9875691500e-4f);
  p = S::Fma(p, r, S::Set(1.3981999507e-3f));
  p = S::Fma(p, r, S::Set(8.3334519073e-3f));
  p = S::Fma(p, r, S::Set(4.1665795894e-2f));
  p = S::Fma(p, r, S::Set(1.6666665459e-1f));
  p = S::Fma(p, r, S::Set(5.0000001201e-1f));
  p = S::Add(S::Fma(p, S::Mul(r, r), r), S::Set(1.0f));
  const S::V power = S::ZeroBelow(S::AddExponent(p, biased), x, lowest);
  return S::Fma(p, S::Zero(), power);  // p is finite, or NaN because x is
}

}  // namespace
}  // namespace skein::engine
