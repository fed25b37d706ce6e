#include "engine/ops/conformance/staged_ops.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// A device's copies of the memory of one call.
class Staging {
 public:
  explicit Staging(Device* device) : device_(device) {}
  ~Staging() {
    for (const Copy& copy : copies_) device_->Free(copy.allocated, copy.bytes + copy.offset + 1);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The device's copy of host memory; the same for the same memory, or within a larger copy.
  void* Read(const void* host, size_t bytes) { return Find(host, bytes).At(host); }
  void* Write(void* host, size_t bytes) {
    Copy& copy = Find(host, bytes);
    copy.written = true;
    return copy.At(host);
  }

  // Makes one copy of each run of matrices that touch or overlap, for later calls to find.
  void KeepTogether(std::vector<ConstMatrix> matrices) {
    std::erase_if(matrices, [](const ConstMatrix& m) { return SizeOf(m) == 0; });
    std::sort(matrices.begin(), matrices.end(),
              [](const ConstMatrix& a, const ConstMatrix& b) { return a.data < b.data; });
    for (size_t i = 0; i < matrices.size();) {
      const auto* begin = static_cast<const std::byte*>(matrices[i].data);
      const std::byte* end = begin;
      for (; i < matrices.size() && matrices[i].data <= end; ++i) {
        const auto* data = static_cast<const std::byte*>(matrices[i].data);
        end = std::max(end, data + SizeOf(matrices[i]));
      }
      Find(begin, static_cast<size_t>(end - begin));
    }
  }

  ConstMatrix Read(const ConstMatrix& m) {
    return {Read(m.data, SizeOf(m)), m.dtype, m.rows, m.cols, m.stride};
  }
  Matrix Write(const Matrix& m) {
    return {Write(m.data, SizeOf(m)), m.dtype, m.rows, m.cols, m.stride};
  }

  RopeTable Read(const RopeTable& table) {
    const size_t bytes =
        static_cast<size_t>(table.max_positions * (table.head_dim / 2)) * sizeof(float);
    return {static_cast<const float*>(Read(table.cos, bytes)),
            static_cast<const float*>(Read(table.sin, bytes)), table.max_positions, table.head_dim};
  }

  // Brings back what was written.
  void Finish() {
    for (const Copy& copy : copies_) {
      if (!copy.written) continue;
      Check(device_->Copy(const_cast<void*>(copy.host), copy.data(), copy.bytes,
                          CopyKind::kDeviceToHost));
    }
    Check(device_->Synchronize());
  }

 private:
  struct Copy {
    const void* host;
    size_t bytes;
    size_t offset;  // keeps the host's misalignment
    void* allocated;
    bool written = false;
    std::byte* data() const { return static_cast<std::byte*>(allocated) + offset; }
    bool Holds(const void* from, size_t count) const {
      const auto* begin = static_cast<const std::byte*>(host);
      const auto* wanted = static_cast<const std::byte*>(from);
      return begin <= wanted && wanted + count <= begin + bytes;
    }
    std::byte* At(const void* from) const {
      return data() + (static_cast<const std::byte*>(from) - static_cast<const std::byte*>(host));
    }
  };

  static void Check(const absl::Status& status) {
    SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str());
  }

  static size_t SizeOf(const ConstMatrix& m) {
    if (m.rows == 0) return 0;
    return static_cast<size_t>((m.rows - 1) * m.stride + m.cols) * BytesOf(m.dtype);
  }

  Copy& Find(const void* host, size_t bytes) {
    for (Copy& copy : copies_) {
      if (copy.Holds(host, bytes)) return copy;
    }
    const size_t offset = reinterpret_cast<uintptr_t>(host) % 16;
    const absl::StatusOr<void*> allocated = device_->Alloc(bytes + offset + 1);  // never nothing
    Check(allocated.status());
    copies_.push_back({host, bytes, offset, *allocated});
    Check(device_->Copy(copies_.back().data(), host, bytes, CopyKind::kHostToDevice));
    return copies_.back();
  }

  Device* const device_;
  std::deque<Copy> copies_;  // references stay
};

class StagedOps final : public Ops {
 public:
  StagedOps(std::unique_ptr<Device> device, std::unique_ptr<Ops> ops)
      : device_(std::move(device)), ops_(std::move(ops)) {}

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    Staging staging(device_.get());
    ops_->Embed(ids, staging.Read(table), staging.Write(out));
    staging.Finish();
  }

  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    Staging staging(device_.get());
    ops_->RmsNorm(staging.Read(x), staging.Read(weight), eps, staging.Write(out));
    staging.Finish();
  }

  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    Staging staging(device_.get());
    ops_->AddRmsNorm(staging.Write(x), staging.Read(y), staging.Read(weight), eps,
                     staging.Write(out));
    staging.Finish();
  }

  void MatMuls(ConstMatrix x, std::span<const Product> products) override {
    Staging staging(device_.get());
    std::vector<ConstMatrix> weights, biases, outs;
    for (const auto& [w, bias, slice, out] : products) {
      weights.push_back(w);
      if (!bias.empty()) biases.push_back(bias);
      outs.push_back(out);
    }
    for (auto* const matrices : {&weights, &biases, &outs}) staging.KeepTogether(*matrices);
    std::vector<Product> staged;
    for (const auto& [w, bias, slice, out] : products) {
      staged.push_back(
          {staging.Read(w), bias.empty() ? bias : staging.Read(bias), slice, staging.Write(out)});
    }
    ops_->MatMuls(staging.Read(x), staged);
    staging.Finish();
  }

  int64_t SkinnyRowsMax(DType x, DType w) const override { return ops_->SkinnyRowsMax(x, w); }

  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    Staging staging(device_.get());
    ops_->Rope(staging.Write(x), positions, staging.Read(table));
    staging.Finish();
  }

  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    Staging staging(device_.get());
    const KvLayerView staged = {staging.Write(kv.base, SizeOf(kv)), kv.spec};
    Rotation turned = rotation;
    if (!rotation.positions.empty()) turned.table = staging.Read(rotation.table);
    ops_->StoreKv(staging.Write(k), staging.Read(v), sequences, staged, turned);
    staging.Finish();
  }

  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override {
    Staging staging(device_.get());
    const KvLayerView staged = {staging.Read(kv.base, SizeOf(kv)), kv.spec};
    ops_->PagedAttention(staging.Read(q), sequences, staged, scale, staging.Write(out),
                         lse.empty() ? lse : staging.Write(lse));
    staging.Finish();
  }

  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override {
    Staging staging(device_.get());
    ops_->MergeAttention(staging.Write(out_a), staging.Write(lse_a), staging.Read(out_b),
                         staging.Read(lse_b));
    staging.Finish();
  }

  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    Staging staging(device_.get());
    ops_->SwiGlu(staging.Read(gate), staging.Read(up), staging.Write(out));
    staging.Finish();
  }

  void Add(Matrix x, ConstMatrix y) override {
    Staging staging(device_.get());
    ops_->Add(staging.Write(x), staging.Read(y));
    staging.Finish();
  }

 private:
  static size_t SizeOf(const KvLayerView& kv) {
    return static_cast<size_t>(kv.spec->num_blocks * kv.spec->BlockBytes());
  }

  std::unique_ptr<Device> device_;  // outlives what works on it
  std::unique_ptr<Ops> ops_;
};

}  // namespace

std::unique_ptr<Ops> MakeStagedOps(std::unique_ptr<Device> device, std::unique_ptr<Ops> ops) {
  return std::make_unique<StagedOps>(std::move(device), std::move(ops));
}

}  // namespace skein::engine
