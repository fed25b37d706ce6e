// CudaOps: Ops as kernels on one stream of a GPU. Calls return when their work is on the stream;
// Device::Copy and Synchronize order themselves behind it. Matrices, RopeTable's angles and KV are
// device memory; ids, positions and spans are the host's, as in ops.h, and go over in small tables
// (device_tables.h).
//
// The same class runs on the GPU and, for tests, on the emulator: it is linked with the kernels of
// one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/attention/cuda_attention.h"
#include "engine/cuda/device/device_tables.h"
#include "engine/cuda/ops/gemm.h"
#include "engine/cuda/ops/paged_tables.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// A step that a graph is made of (decode_graphs.h): its kernels go to another stream, and find what
// differs from step to step in device memory that was there before and stays.
struct RecordedStep {
  CudaStream stream = nullptr;
  // The arguments with which Ops will be called …
  std::span<const int32_t> ids;
  std::span<const int32_t> positions;
  std::span<const SequenceSpan> sequences;
  int query_heads = 0;
  // … and where that is.
  const int32_t* device_ids = nullptr;
  const int32_t* device_positions = nullptr;
  PagedBatch batch{};
  AttentionWork attention;  // for FlashAttention
};

class CudaOps final : public Ops {
 public:
  // `gemm` and `stream` work on `device`'s memory, in the order of its copies. `policy` is how
  // attention is cut for it (policy.blocks: two for each multiprocessor). `enter` is called first
  // by every method: it makes the GPU the calling thread's own (CUDA's current device is a
  // thread's).
  CudaOps(std::shared_ptr<Device> device, CudaStream stream, std::unique_ptr<Gemm> gemm,
          const AttentionPolicy& policy, std::function<void()> enter);

  void Embed(std::span<const int32_t> ids, ConstMatrix table, Matrix out) override;
  void RmsNorm(ConstMatrix x, ConstVector weight, float eps, Matrix out) override;
  void AddRmsNorm(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out) override;
  void MatMuls(ConstMatrix x, std::span<const Product> products) override;
  int64_t SkinnyRowsMax(DType x, DType w) const override { return gemm_->SkinnyRowsMax(x, w); }
  void Rope(Matrix x, std::span<const int32_t> positions, const RopeTable& table) override;
  void StoreKv(Matrix k, ConstMatrix v, std::span<const SequenceSpan> sequences,
               const KvLayerView& kv, const Rotation& rotation) override;
  void PagedAttention(ConstMatrix q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
                      float scale, Matrix out, Matrix lse) override;
  void MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) override;
  void SwiGlu(ConstMatrix gate, ConstMatrix up, Matrix out) override;
  void Add(Matrix x, ConstMatrix y) override;

  // Calls that follow, until Record(nullptr), are those of `step`, which outlives them. Ends the
  // process when they have other ids, positions or sequences.
  void Record(const RecordedStep* step) { recorded_ = step; }
  const AttentionPolicy& attention_policy() const { return policy_; }
  // The stream of all kernels outside a recorded step.
  CudaStream own_stream() const { return stream_; }

 private:
  CudaStream stream() const { return recorded_ != nullptr ? recorded_->stream : stream_; }
  size_t MultiplyFirst(ConstMatrix x, std::span<const Product> products);
  const int32_t* IdsOnDevice(std::span<const int32_t> ids);
  const int32_t* PositionsOnDevice(std::span<const int32_t> positions);
  const int32_t* OnDevice(std::span<const int32_t> values);
  PagedBatch OnDevice(std::span<const SequenceSpan> sequences, const KvSpec& spec);

  const CudaStream stream_;
  const std::unique_ptr<Gemm> gemm_;
  const AttentionPolicy policy_;
  const std::function<void()> enter_;
  DeviceTables tables_;
  CudaAttention attention_;
  PagedTables paged_;  // of the call, as bytes_
  std::vector<std::byte> bytes_;
  const RecordedStep* recorded_ = nullptr;
};

}  // namespace skein::engine
