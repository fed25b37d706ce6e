#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<PathFabric>> MakeGpuFabric(const std::string& name,
                                                          std::shared_ptr<Device>,
                                                          const WorkerFabricOptions&) {
  return absl::InvalidArgumentError(absl::StrCat(
      "device: '", name,
      "': this binary was built without CUDA; rebuild it with bazel build --config=cuda"));
}

}  // namespace skein::engine
