// ReferenceOps: the oracle. Every method written as its definition reads, one thread, sums in f64,
// inputs taken at their stored precision and outputs rounded once. Fast implementations are held
// to it by the suite in engine/ops/conformance.
#pragma once

#include "engine/ops/ops.h"

namespace skein::engine {

class ReferenceOps : public Ops {
 public:
  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override;
  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override;
  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override;
  void MatMuls(ConstMatrix x, std::span<const Product> products) override;
  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override;
  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override;
  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override;
  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override;
  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override;
  void Add(Matrix x, ConstMatrix y) override;
};

}  // namespace skein::engine
