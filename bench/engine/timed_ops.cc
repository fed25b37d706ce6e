#include "bench/engine/timed_ops.h"

#include <utility>

namespace skein::bench {
namespace {

using engine::ConstMatrix;
using engine::ConstVector;
using engine::KvLayerView;
using engine::Matrix;
using engine::Product;
using engine::RopeTable;
using engine::Rotation;
using engine::SequenceSpan;

// Such as "MatMul 2048+256+256x2048".
std::string NameOfProducts(std::span<const Product> products) {
  std::string rows;
  for (const Product& p : products) {
    rows += (rows.empty() ? "" : "+") + std::to_string(p.w.rows);
  }
  return "MatMul " + rows + "x" + std::to_string(products[0].w.cols);
}

double BytesOfWeights(std::span<const Product> products) {
  double bytes = 0;
  for (const Product& p : products) {
    bytes += static_cast<double>(p.w.rows * p.w.cols) * static_cast<double>(BytesOf(p.w.dtype));
  }
  return bytes;
}

class TimedOps final : public engine::Ops {
 public:
  TimedOps(std::unique_ptr<engine::Ops> ops, Clock clock, std::vector<OpCall>* calls)
      : ops_(std::move(ops)), clock_(clock), calls_(calls) {}

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    Time("Embed", 0, [&] { ops_->Embed(ids, table, out); });
  }
  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    Time("RmsNorm", 0, [&] { ops_->RmsNorm(x, weight, eps, out); });
  }
  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    Time("AddRmsNorm", 0, [&] { ops_->AddRmsNorm(x, y, weight, eps, out); });
  }
  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    Time(NameOfProducts(products), BytesOfWeights(products), [&] { ops_->MatMuls(x, products); });
  }
  int64_t KeySegment(int block_tokens) const override { return ops_->KeySegment(block_tokens); }
  int64_t SkinnyRowsMax(engine::DType x, engine::DType w) const override {
    return ops_->SkinnyRowsMax(x, w);
  }
  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    Time("Rope", 0, [&] { ops_->Rope(x, positions, table); });
  }
  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    Time("StoreKv", 0, [&] { ops_->StoreKv(k, v, sequences, kv, rotation); });
  }
  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override {
    Time("PagedAttention", 0, [&] { ops_->PagedAttention(q, sequences, kv, scale, out, lse); });
  }
  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override {
    Time("MergeAttention", 0, [&] { ops_->MergeAttention(out_a, lse_a, out_b, lse_b); });
  }
  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    Time("SwiGlu", 0, [&] { ops_->SwiGlu(gate, up, out); });
  }
  void Add(Matrix x, ConstMatrix y) override {
    Time("Add", 0, [&] { ops_->Add(x, y); });
  }

 private:
  template <typename Call>
  void Time(std::string name, double bytes, const Call& call) {
    const double begin = SecondsNow(clock_);
    call();
    calls_->push_back({std::move(name), bytes, SecondsNow(clock_) - begin});
  }

  std::unique_ptr<engine::Ops> ops_;
  Clock clock_;
  std::vector<OpCall>* calls_;
};

}  // namespace

std::unique_ptr<engine::Ops> MakeTimedOps(std::unique_ptr<engine::Ops> ops, Clock clock,
                                          std::vector<OpCall>* calls) {
  return std::make_unique<TimedOps>(std::move(ops), clock, calls);
}

}  // namespace skein::bench
