#include "engine/model/testing/far_ops.h"

#include <utility>
#include <vector>

namespace skein::engine {
namespace {

// Spans with the block tables that they point into.
class KeptSpans {
 public:
  explicit KeptSpans(std::span<const SequenceSpan> spans) : spans_(spans.begin(), spans.end()) {
    for (SequenceSpan& span : spans_) {
      tables_.emplace_back(span.block_table.begin(), span.block_table.end());
    }
    for (size_t i = 0; i < spans_.size(); ++i) spans_[i].block_table = tables_[i];
  }
  // A move keeps where the tables lie; a copy would not.
  KeptSpans(KeptSpans&&) = default;

  std::span<const SequenceSpan> spans() const { return spans_; }

 private:
  std::vector<SequenceSpan> spans_;
  std::vector<std::vector<int32_t>> tables_;
};

class FarOps final : public Ops {
 public:
  FarOps(std::shared_ptr<FarDevice> device, std::unique_ptr<Ops> ops)
      : device_(std::move(device)), ops_(std::move(ops)) {}
  ~FarOps() override { (void)device_->Synchronize(); }

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    device_->Queue([this, kept = std::vector<int32_t>(ids.begin(), ids.end()), table = Near(table),
                    out = Near(out)] { ops_->Embed(kept, table, out); });
  }

  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    device_->Queue([this, x = Near(x), weight = Near(weight), eps, out = Near(out)] {
      ops_->RmsNorm(x, weight, eps, out);
    });
  }

  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    device_->Queue([this, x = Near(x), y = Near(y), weight = Near(weight), eps, out = Near(out)] {
      ops_->AddRmsNorm(x, y, weight, eps, out);
    });
  }

  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    std::vector<Product> kept;
    for (const auto& [w, bias, slice, out] : products) {
      kept.push_back({Near(w), Near(bias), slice, Near(out)});
    }
    device_->Queue([this, x = Near(x), kept] { ops_->MatMuls(x, kept); });
  }

  int64_t SkinnyRowsMax(DType x, DType w) const override { return ops_->SkinnyRowsMax(x, w); }

  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    device_->Queue([this, x = Near(x),
                    kept = std::vector<int32_t>(positions.begin(), positions.end()),
                    table = Near(table)] { ops_->Rope(x, kept, table); });
  }

  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    auto kept = std::make_shared<KeptSpans>(sequences);
    std::vector<int32_t> positions(rotation.positions.begin(), rotation.positions.end());
    device_->Queue([this, k = Near(k), v = Near(v), kept, base = device_->Near(kv.base),
                    spec = *kv.spec, positions, table = Near(rotation.table)] {
      ops_->StoreKv(k, v, kept->spans(), {base, &spec}, {positions, table});
    });
  }

  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override {
    auto kept = std::make_shared<KeptSpans>(sequences);
    device_->Queue([this, q = Near(q), kept, base = device_->Near(kv.base), spec = *kv.spec, scale,
                    out = Near(out), lse = Near(lse)] {
      ops_->PagedAttention(q, kept->spans(), {base, &spec}, scale, out, lse);
    });
  }

  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override {
    device_->Queue([this, out_a = Near(out_a), lse_a = Near(lse_a), out_b = Near(out_b),
                    lse_b = Near(lse_b)] { ops_->MergeAttention(out_a, lse_a, out_b, lse_b); });
  }

  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    device_->Queue(
        [this, gate = Near(gate), up = Near(up), out = Near(out)] { ops_->SwiGlu(gate, up, out); });
  }

  void Add(Matrix x, ConstMatrix y) override {
    device_->Queue([this, x = Near(x), y = Near(y)] { ops_->Add(x, y); });
  }

 private:
  RopeTable Near(RopeTable table) const {
    table.cos = device_->NearOf(table.cos);
    table.sin = device_->NearOf(table.sin);
    return table;
  }
  template <typename View>
  View Near(View view) const {
    view.data = device_->NearOf(view.data);
    return view;
  }

  const std::shared_ptr<FarDevice> device_;
  const std::unique_ptr<Ops> ops_;
};

}  // namespace

std::unique_ptr<Ops> MakeFarOps(std::shared_ptr<FarDevice> device, std::unique_ptr<Ops> ops) {
  return std::make_unique<FarOps>(std::move(device), std::move(ops));
}

}  // namespace skein::engine
