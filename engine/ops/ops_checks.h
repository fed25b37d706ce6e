// The shape and type contract of every method of Ops, checked in one place for all
// implementations. A violation is a programmer error (SKEIN_CHECK).
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/ops.h"

namespace skein::engine {

void CheckEmbed(std::span<const int32_t> ids, const ConstMatrix& table, const Matrix& out);
void CheckRmsNorm(const ConstMatrix& x, const ConstVector& weight, const Matrix& out);
void CheckAddRmsNorm(const Matrix& x, const ConstMatrix& y, const ConstVector& weight,
                     const Matrix& out);
void CheckMatMuls(const ConstMatrix& x, std::span<const Product> products);
void CheckRope(const ConstMatrix& x, std::span<const int32_t> positions, const RopeTable& table);
void CheckStoreKv(const ConstMatrix& k, const ConstMatrix& v,
                  std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                  const Rotation& rotation);
void CheckPagedAttention(const ConstMatrix& q, std::span<const SequenceSpan> sequences,
                         const KvLayerView& kv, const Matrix& out, const Matrix& lse);
void CheckMergeAttention(const Matrix& out_a, const Matrix& lse_a, const ConstMatrix& out_b,
                         const ConstMatrix& lse_b);
void CheckSwiGlu(const ConstMatrix& gate, const ConstMatrix& up, const Matrix& out);
void CheckAdd(const Matrix& x, const ConstMatrix& y);

}  // namespace skein::engine
