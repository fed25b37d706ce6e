// The CUDA backend: a GPU's Device and the Ops on it. Built with --config=cuda only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/device/device.h"
#include "engine/ops/decode_runner.h"
#include "engine/ops/ops.h"

namespace skein::engine {

struct CudaBackend {
  std::shared_ptr<CudaDevice> gpu;
  std::unique_ptr<Device> device;  // the same GPU, for callers that own a Device
  std::unique_ptr<Ops> ops;
  MakeDecodeRunner make_decode_runner;  // graphs of steps on `ops`, which outlives them
};

// `name` is "cuda:N". Errors as OpenCudaDevice, and RESOURCE_EXHAUSTED. On Hopper its own attention
// kernel is checked first (attention/wide_choice.h); `warn` is told where it is not used, and why.
absl::StatusOr<CudaBackend> MakeCudaBackend(std::string_view name,
                                            const std::function<void(const std::string&)>& warn);

}  // namespace skein::engine
