#include "engine/cuda/cuda_engine.h"

#include <utility>

#include "engine/cuda/cuda_backend.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Engine>> MakeCudaEngine(const std::string& model_dir,
                                                       const ModelEngineOptions& options) {
  absl::StatusOr<CudaBackend> backend = MakeCudaBackend(options.device_name);
  if (!backend.ok()) return backend.status();
  return MakeModelEngine(model_dir, std::move(backend->ops), std::move(backend->device), options);
}

}  // namespace skein::engine
