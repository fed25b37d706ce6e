// The engine of a checkpoint on a GPU, for code that does not include CUDA's headers. A build
// without CUDA returns an error that says so.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/model_engine.h"

namespace skein::engine {

struct CudaEngine {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Device> device;  // whose work the engine's is, for callers that must wait for it
};

// `options.device_name` is "cuda:N". INVALID_ARGUMENT names the field `device` and the value: no
// such device, or a build without CUDA. Otherwise errors as OpenCudaDevice and MakeModelEngine.
absl::StatusOr<CudaEngine> MakeCudaEngine(const std::string& model_dir,
                                          const ModelEngineOptions& options);

}  // namespace skein::engine
