#include "engine/cuda/cuda_device.h"
#include "engine/cuda/cuda_engine.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<Engine>> MakeCudaEngine(const std::string&,
                                                       const ModelEngineOptions& options) {
  const absl::StatusOr<int> id = ParseCudaDevice(options.device_name);
  if (!id.ok()) return id.status();
  return absl::InvalidArgumentError("device: '" + options.device_name +
                                    "': this build has no CUDA (it takes --config=cuda)");
}

}  // namespace skein::engine
