#include "engine/cuda/cuda_ops.h"

#include <utility>
#include <vector>

#include "engine/cuda/attention/cuda_attention.h"
#include "engine/cuda/device_tables.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/ops/ops_checks.h"

namespace skein::engine {
namespace {

int64_t KeysOf(const SequenceSpan& s) { return s.keys >= 0 ? s.keys : s.position + s.token_count; }

int64_t BlocksOf(const SequenceSpan& s, int64_t block_tokens) {
  return (KeysOf(s) + block_tokens - 1) / block_tokens;
}

class CudaOps final : public Ops {
 public:
  CudaOps(std::shared_ptr<Device> device, CudaStream stream, std::unique_ptr<Gemm> gemm,
          const AttentionPolicy& policy, std::function<void()> enter)
      : stream_(stream),
        gemm_(std::move(gemm)),
        enter_(std::move(enter)),
        tables_(device),
        attention_(std::move(device), stream, policy) {}

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override {
    CheckEmbed(ids, table, out);
    enter_();
    if (!ids.empty()) EmbedKernel(OnDevice(ids), table, out, stream_);
  }

  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override {
    CheckRmsNorm(x, weight, out);
    enter_();
    const Matrix as_is = {const_cast<void*>(x.data), x.dtype, x.rows, x.cols, x.stride};
    RmsNormKernel(as_is, /*y=*/{}, weight, eps, out, stream_);
  }

  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override {
    CheckAddRmsNorm(x, y, weight, out);
    enter_();
    RmsNormKernel(x, y, weight, eps, out, stream_);
  }

  void MatMul(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out) override {
    CheckMatMul(x, w, bias, out);
    enter_();
    if (out.rows > 0 && out.cols > 0) gemm_->Multiply(x, w, bias, out);
  }

  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override {
    CheckRope(x, positions, table);
    enter_();
    if (positions.empty()) return;
    RopeKernel(x, OnDevice(positions), table.cos, table.sin, table.head_dim, stream_);
  }

  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override {
    CheckStoreKv(k, v, sequences, kv, rotation);
    enter_();
    const PagedBatch batch = OnDevice(sequences, *kv.spec);
    const int32_t* positions = rotation.positions.empty() ? nullptr : OnDevice(rotation.positions);
    StoreKvKernel(k, v, batch, ViewOf(kv), positions, rotation.table.cos, rotation.table.sin,
                  stream_);
  }

  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override {
    CheckPagedAttention(q, sequences, kv, out, lse);
    enter_();
    const PagedBatch batch = OnDevice(sequences, *kv.spec);
    attention_.Attend({q, batch, ViewOf(kv), scale, out, lse}, spans_, &tables_);
  }

  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override {
    CheckMergeAttention(out_a, lse_a, out_b, lse_b);
    enter_();
    MergeAttentionKernel(out_a, lse_a, out_b, lse_b, stream_);
  }

  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override {
    CheckSwiGlu(gate, up, out);
    enter_();
    SwiGluKernel(gate, up, out, stream_);
  }

  void Add(Matrix x, ConstMatrix y) override {
    CheckAdd(x, y);
    enter_();
    AddKernel(x, y, stream_);
  }

 private:
  static DeviceKv ViewOf(const KvLayerView& kv) {
    const KvSpec& spec = *kv.spec;
    return {kv.base, spec.dtype, spec.head_dim,
            spec.BlockBytes() / static_cast<int64_t>(BytesOf(spec.dtype))};
  }

  const int32_t* OnDevice(std::span<const int32_t> values) {
    return reinterpret_cast<const int32_t*>(tables_.Get(std::as_bytes(values)));
  }

  // Spans, then all their block ids, in one table.
  PagedBatch OnDevice(std::span<const SequenceSpan> sequences, const KvSpec& spec) {
    spans_.clear();
    ids_.clear();
    int32_t rows = 0;
    for (const SequenceSpan& s : sequences) {
      const int tokens = s.layout.TokensPerBlock(spec);
      const auto count = static_cast<int32_t>(s.token_count);
      spans_.push_back({s.token_begin, s.position, s.keys, count, rows,
                        static_cast<int32_t>(ids_.size()), tokens, s.layout.KvHeads(spec), 0});
      ids_.insert(ids_.end(), s.block_table.begin(), s.block_table.begin() + BlocksOf(s, tokens));
      rows += count;
    }
    if (rows == 0) return {};
    const auto spans = std::as_bytes(std::span(spans_)), ids = std::as_bytes(std::span(ids_));
    bytes_.assign(spans.begin(), spans.end());
    bytes_.insert(bytes_.end(), ids.begin(), ids.end());
    const std::byte* table = tables_.Get(bytes_);
    return {reinterpret_cast<const DeviceSpan*>(table),
            reinterpret_cast<const int32_t*>(table + spans.size()),
            static_cast<int32_t>(spans_.size()), rows};
  }

  const CudaStream stream_;
  const std::unique_ptr<Gemm> gemm_;
  const std::function<void()> enter_;
  DeviceTables tables_;
  CudaAttention attention_;
  std::vector<DeviceSpan> spans_;  // of the call, as ids_ and bytes_
  std::vector<int32_t> ids_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Ops> MakeCudaOps(std::shared_ptr<Device> device, CudaStream stream,
                                 std::unique_ptr<Gemm> gemm, const AttentionPolicy& policy,
                                 std::function<void()> enter) {
  return std::make_unique<CudaOps>(std::move(device), stream, std::move(gemm), policy,
                                   std::move(enter));
}

}  // namespace skein::engine
