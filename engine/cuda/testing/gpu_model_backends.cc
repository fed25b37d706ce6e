// The engine of a worker with --device=cuda:0.
#include <utility>

#include "engine/cuda/engine/cuda_engine.h"
#include "engine/model/testing/model_backends.h"

namespace skein::engine {

std::vector<ModelBackend> ModelBackends() {
  const auto make = [](const std::string& dir,
                       ModelEngineOptions options) -> absl::StatusOr<std::unique_ptr<Engine>> {
    options.device_name = "cuda:0";
    absl::StatusOr<CudaEngine> made = MakeCudaEngine(dir, options);
    if (!made.ok()) return made.status();
    return std::move(made->engine);
  };
  return {{"Cuda", make}};
}

}  // namespace skein::engine
