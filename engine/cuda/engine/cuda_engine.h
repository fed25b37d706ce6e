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
  int group_ranks_max = 1;         // of the largest group that it runs steps in; 1: none
};

// `options.device_name` is "cuda:N". `group_ranks_max`: of the largest group that it is to run
// steps in, as far as the model's heads can be dealt to so many: a GroupEngine; 1: a ModelEngine.
// INVALID_ARGUMENT names the field `device` and the value: no such device, or a build without CUDA.
// Otherwise errors as OpenCudaDevice, MakeModelEngine and GroupEngine::Make.
absl::StatusOr<CudaEngine> MakeCudaEngine(const std::string& model_dir,
                                          const ModelEngineOptions& options,
                                          int group_ranks_max = 1);

}  // namespace skein::engine
