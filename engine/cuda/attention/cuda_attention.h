// CudaAttention: Ops::PagedAttention on one device: chooses the kernels, and keeps the plan and the
// memory for partial results from call to call (the layers of a step have the same spans).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/device/device_tables.h"
#include "engine/device/device.h"

namespace skein::engine {

class CudaAttention {
 public:
  // `stream` is the one that `device` copies in the order of. policy.blocks: two for each of the
  // device's multiprocessors; policy.wide: ChooseWideKernel (wide_choice.h).
  CudaAttention(std::shared_ptr<Device> device, CudaStream stream, const AttentionPolicy& policy)
      : device_(std::move(device)), stream_(stream), wide_(policy.wide), plan_(policy) {}
  ~CudaAttention();
  CudaAttention(const CudaAttention&) = delete;
  CudaAttention& operator=(const CudaAttention&) = delete;

  // Puts the attention of `call` on the stream: FlashAttention where it takes it, else
  // PlainAttentionKernel (f32 KV, odd head_dims). `spans` are the host's copy of call.batch.spans;
  // the plan goes over in `tables`. Ends the process when the device has no memory left for partial
  // results: an Ops has no way to say so.
  void Attend(const AttentionCall& call, std::span<const DeviceSpan> spans, DeviceTables* tables);

 private:
  void BuildPlan(std::span<const DeviceSpan> spans, int heads, int head_dim);
  void* Scratch(size_t bytes);

  const std::shared_ptr<Device> device_;
  const CudaStream stream_;
  const WideKernel wide_;
  AttentionPlan plan_;
  std::vector<DeviceSpan> planned_spans_;  // that plan_ is for
  int planned_heads_ = 0;
  int planned_head_dim_ = 0;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace skein::engine
