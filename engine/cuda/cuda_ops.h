// CudaOps: Ops as kernels on one stream of a GPU. Calls return when their work is on the stream;
// Device::Copy and Synchronize order themselves behind it. Matrices, RopeTable's angles and KV are
// device memory; ids, positions and spans are the host's, as in ops.h, and go over in small tables
// (device_tables.h).
//
// The same class runs on the GPU and, for tests, on the emulator: it is linked with the kernels of
// one of them.
#pragma once

#include <functional>
#include <memory>

#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/stream.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// `gemm` and `stream` work on `device`'s memory, in the order of its copies. `policy` is how
// attention is cut for it (policy.blocks: two for each multiprocessor). `enter` is called first by
// every method: it makes the GPU the calling thread's own (CUDA's current device is a thread's).
std::unique_ptr<Ops> MakeCudaOps(std::shared_ptr<Device> device, CudaStream stream,
                                 std::unique_ptr<Gemm> gemm, const AttentionPolicy& policy,
                                 std::function<void()> enter);

}  // namespace skein::engine
