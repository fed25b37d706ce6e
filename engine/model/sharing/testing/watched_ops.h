// Ops that tell a test before they multiply: what runs there can wait, or end the process.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "engine/ops/ops.h"

namespace skein::engine {

class WatchedOps final : public Ops {
 public:
  WatchedOps(std::unique_ptr<Ops> ops, std::function<void(int64_t rows)> before_products)
      : ops_(std::move(ops)), before_products_(std::move(before_products)) {}

  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    before_products_(x.rows);
    ops_->MatMuls(x, products);
  }

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    ops_->Embed(ids, table, out);
  }
  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    ops_->RmsNorm(x, weight, eps, out);
  }
  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    ops_->AddRmsNorm(x, y, weight, eps, out);
  }
  int64_t SkinnyRowsMax(DType x, DType w) const override { return ops_->SkinnyRowsMax(x, w); }
  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    ops_->Rope(x, positions, table);
  }
  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    ops_->StoreKv(k, v, sequences, kv, rotation);
  }
  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override {
    ops_->PagedAttention(q, sequences, kv, scale, out, lse);
  }
  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override {
    ops_->MergeAttention(out_a, lse_a, out_b, lse_b);
  }
  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    ops_->SwiGlu(gate, up, out);
  }
  void Add(Matrix x, ConstMatrix y) override { ops_->Add(x, y); }
  int64_t KeySegment(int block_tokens) const override { return ops_->KeySegment(block_tokens); }
  ThreadPool* HostThreads() override { return ops_->HostThreads(); }

 private:
  const std::unique_ptr<Ops> ops_;
  const std::function<void(int64_t rows)> before_products_;
};

}  // namespace skein::engine
