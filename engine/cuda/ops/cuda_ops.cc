#include "engine/cuda/ops/cuda_ops.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/cuda/kernels/kernels.h"
#include "engine/ops/ops_checks.h"
#include "engine/ops/products.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

DeviceKv ViewOf(const KvLayerView& kv) {
  const KvSpec& spec = *kv.spec;
  return {kv.base, spec.dtype, spec.head_dim,
          spec.BlockBytes() / static_cast<int64_t>(BytesOf(spec.dtype))};
}

bool IsSame(const SequenceSpan& a, const SequenceSpan& b) {
  return a.token_begin == b.token_begin && a.token_count == b.token_count &&
         a.position == b.position && a.keys == b.keys && a.layout.tp == b.layout.tp &&
         a.block_table.data() == b.block_table.data();
}

}  // namespace

CudaOps::CudaOps(std::shared_ptr<Device> device, CudaStream stream, std::unique_ptr<Gemm> gemm,
                 const AttentionPolicy& policy, std::function<void()> enter)
    : stream_(stream),
      gemm_(std::move(gemm)),
      policy_(policy),
      enter_(std::move(enter)),
      tables_(device),
      attention_(std::move(device), stream, policy) {}

void CudaOps::Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) {
  CheckEmbed(ids, table, out);
  enter_();
  if (!ids.empty()) EmbedKernel(IdsOnDevice(ids), table, out, stream());
}

void CudaOps::RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) {
  CheckRmsNorm(x, weight, out);
  enter_();
  const Matrix as_is = {const_cast<void*>(x.data), x.dtype, x.rows, x.cols, x.stride};
  RmsNormKernel(as_is, /*y=*/{}, weight, eps, out, stream());
}

void CudaOps::AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) {
  CheckAddRmsNorm(x, y, weight, out);
  enter_();
  RmsNormKernel(x, y, weight, eps, out, stream());
}

void CudaOps::MatMuls(ConstMatrix x, std::span<const Product> products) {
  CheckMatMuls(x, products);
  enter_();
  while (!products.empty()) products = products.subspan(MultiplyFirst(x, products));
}

// The first of the products and those that are one with it; how many these are.
size_t CudaOps::MultiplyFirst(ConstMatrix x, std::span<const Product> products) {
  BandedProduct banded = {products[0], {}};
  Product one = products[0];                // of neighbours: any Gemm takes it
  size_t in_bands = 1, are_neighbours = 1;  // products
  for (; in_bands < products.size(); ++in_bands) {
    const std::optional<BandedProduct> joined = JoinedInBands(banded, products[in_bands]);
    if (!joined.has_value()) break;
    banded = *joined;
    if (!banded.bands.plain()) continue;
    one = banded.product;
    are_neighbours = in_bands + 1;
  }
  const Matrix& out = banded.product.out;
  if (in_bands > are_neighbours && out.rows > 0 && out.cols > 0 &&
      gemm_->MultiplyBands(x, banded, stream())) {
    return in_bands;
  }
  if (one.out.rows > 0 && one.out.cols > 0) {
    gemm_->Multiply(x, one.w, one.bias, one.out, stream());
  }
  return are_neighbours;
}

void CudaOps::Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) {
  CheckRope(x, positions, table);
  enter_();
  if (positions.empty()) return;
  RopeKernel(x, PositionsOnDevice(positions), table.cos, table.sin, table.head_dim, stream());
}

void CudaOps::StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
                      const KvLayerView& kv, const Rotation& rotation) {
  CheckStoreKv(k, v, sequences, kv, rotation);
  enter_();
  const PagedBatch batch = OnDevice(sequences, *kv.spec);
  const int32_t* positions =
      rotation.positions.empty() ? nullptr : PositionsOnDevice(rotation.positions);
  StoreKvKernel(k, v, batch, ViewOf(kv), positions, rotation.table.cos, rotation.table.sin,
                stream());
}

void CudaOps::PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences,
                             const KvLayerView& kv, float scale, Matrix out, Matrix lse) {
  CheckPagedAttention(q, sequences, kv, out, lse);
  enter_();
  const PagedBatch batch = OnDevice(sequences, *kv.spec);
  const AttentionCall call = {q, batch, ViewOf(kv), scale, out, lse};
  if (recorded_ == nullptr) return attention_.Attend(call, paged_.spans(), &tables_);
  SKEIN_CHECK(q.cols == int64_t{recorded_->query_heads} * kv.spec->head_dim);
  if (FlashAttentionTakes(call.kv, scale)) {
    SKEIN_CHECK(recorded_->attention.plan != nullptr);
    FlashAttention(call, recorded_->attention, stream());
  } else {
    PlainAttentionKernel(q, batch, call.kv, scale, out, lse, stream());
  }
}

void CudaOps::MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) {
  CheckMergeAttention(out_a, lse_a, out_b, lse_b);
  enter_();
  MergeAttentionKernel(out_a, lse_a, out_b, lse_b, stream());
}

void CudaOps::SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) {
  CheckSwiGlu(gate, up, out);
  enter_();
  SwiGluKernel(gate, up, out, stream());
}

void CudaOps::Add(Matrix x, ConstMatrix y) {
  CheckAdd(x, y);
  enter_();
  AddKernel(x, y, stream());
}

const int32_t* CudaOps::IdsOnDevice(std::span<const int32_t> ids) {
  if (recorded_ == nullptr) return OnDevice(ids);
  SKEIN_CHECK_MSG(std::ranges::equal(ids, recorded_->ids), "not the recorded step's ids");
  return recorded_->device_ids;
}

const int32_t* CudaOps::PositionsOnDevice(std::span<const int32_t> positions) {
  if (recorded_ == nullptr) return OnDevice(positions);
  SKEIN_CHECK_MSG(std::ranges::equal(positions, recorded_->positions),
                  "not the recorded step's positions");
  return recorded_->device_positions;
}

const int32_t* CudaOps::OnDevice(std::span<const int32_t> values) {
  return reinterpret_cast<const int32_t*>(tables_.Get(std::as_bytes(values)));
}

// Spans, then all their block ids, in one table.
PagedBatch CudaOps::OnDevice(std::span<const SequenceSpan> sequences, const KvSpec& spec) {
  if (recorded_ != nullptr) {
    SKEIN_CHECK_MSG(std::ranges::equal(sequences, recorded_->sequences, IsSame),
                    "not the recorded step's sequences");
    return recorded_->batch;
  }
  paged_.Build(sequences, spec);
  if (paged_.rows() == 0) return {};
  const auto spans = std::as_bytes(paged_.spans()), ids = std::as_bytes(paged_.ids());
  bytes_.assign(spans.begin(), spans.end());
  bytes_.insert(bytes_.end(), ids.begin(), ids.end());
  const std::byte* table = tables_.Get(bytes_);
  return {reinterpret_cast<const DeviceSpan*>(table),
          reinterpret_cast<const int32_t*>(table + spans.size()),
          static_cast<int32_t>(paged_.spans().size()), paged_.rows()};
}

}  // namespace skein::engine
