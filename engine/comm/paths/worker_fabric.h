// The PathFabrics of workers, for code that does not include the headers of CUDA and UCX.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/comm/paths/comm_path.h"
#include "engine/comm/paths/path_fabric.h"
#include "engine/device/device.h"
#include "engine/ucx/ucx_options.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

struct WorkerFabricOptions {
  UcxOptions hosts;
  std::shared_ptr<UcxPlane> plane;               // what UCX carries goes by it; null: its own
  std::optional<CommPath> path;                  // groups take it or none; nullopt: the best
  std::function<void(const std::string&)> warn;  // as PathFabricOptions::warn
  // On a GPU: groups of up to so many instances of the node run steps together (2 … 8). Their
  // collectives' kernels need device memory, which is taken now, KernelBytesOfNode for each of
  // three generations (GroupContexts): 180 MiB for 8. 0: there are none.
  int step_ranks_max = 0;
};

// For buffers in the host's memory. INVALID_ARGUMENT names the field `comm_path` and the value if
// that is a path of GPUs. UNAVAILABLE if UCX cannot start.
absl::StatusOr<std::unique_ptr<PathFabric>> MakeHostFabric(const WorkerFabricOptions& options);

// For buffers in the memory of `device`, which is "cuda:N". INVALID_ARGUMENT names the field and
// the value: `comm_path` if this machine lacks that path, and why; `device` in a build without
// CUDA. UNAVAILABLE if UCX cannot start, RESOURCE_EXHAUSTED if the GPU has no memory left.
absl::StatusOr<std::unique_ptr<PathFabric>> MakeGpuFabric(const std::string& name,
                                                          std::shared_ptr<Device> device,
                                                          const WorkerFabricOptions& options);

}  // namespace skein::engine
