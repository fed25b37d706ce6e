#include "engine/cuda/attention/cuda_attention.h"

#include <algorithm>
#include <cstring>

#include "engine/cuda/kernels/kernels.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

CudaAttention::~CudaAttention() {
  if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
}

void CudaAttention::Attend(const AttentionCall& call, std::span<const DeviceSpan> spans,
                           DeviceTables* tables) {
  if (call.batch.rows == 0) return;
  if (!FlashAttentionTakes(call.kv, call.scale)) {
    PlainAttentionKernel(call.q, call.batch, call.kv, call.scale, call.out, call.lse, stream_);
    return;
  }
  BuildPlan(spans, static_cast<int>(call.q.cols / call.kv.head_dim), call.kv.head_dim);
  const int64_t rows = plan_.partial_rows();
  void* scratch = Scratch(AttentionScratchBytes(rows, call.kv.head_dim));
  FlashAttention(call, {plan_.grid(), tables->Get(plan_.bytes()), scratch, rows, wide_}, stream_);
}

void CudaAttention::BuildPlan(std::span<const DeviceSpan> spans, int heads, int head_dim) {
  const bool same =
      heads == planned_heads_ && head_dim == planned_head_dim_ &&
      spans.size() == planned_spans_.size() &&
      (spans.empty() || std::memcmp(spans.data(), planned_spans_.data(), spans.size_bytes()) == 0);
  if (same) return;
  plan_.Build(spans, heads, head_dim);
  planned_spans_.assign(spans.begin(), spans.end());
  planned_heads_ = heads;
  planned_head_dim_ = head_dim;
}

void* CudaAttention::Scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  // Kernels on the stream may still use the old one.
  const absl::Status done = device_->Synchronize();
  SKEIN_CHECK_MSG(done.ok(), done.ToString().c_str());
  if (scratch_ != nullptr) device_->Free(scratch_, scratch_bytes_);
  scratch_bytes_ = std::max(bytes, 2 * scratch_bytes_);
  const absl::StatusOr<void*> memory = device_->Alloc(scratch_bytes_);
  SKEIN_CHECK_MSG(memory.ok(), memory.status().ToString().c_str());
  scratch_ = *memory;
  return scratch_;
}

}  // namespace skein::engine
