// The fabrics of GPUs: ranks in threads of one process, all on the first GPU; over NCCL each on one
// of its own.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/conformance/conformance.h"
#include "engine/comm/device/device_fabric.h"
#include "engine/comm/device/nccl/nccl_fabric.h"
#include "engine/comm/device/peers/cuda_peer_fabric.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/comm/testing/device_buffers.h"
#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/comm/ucx/ucx_link_fabric.h"
#include "engine/cuda/device/cuda_device.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kRanksMax = 8;  // of the suite's groups

template <typename T>
T Must(absl::StatusOr<T> made) {
  SKEIN_CHECK_MSG(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

// In memory of `device`, GPU `gpu`.
std::unique_ptr<Fabric> MakeOnGpu(const std::string& name, int gpu,
                                  const std::shared_ptr<CudaDevice>& device) {
  const UcxOptions hosts = {.tls = "self,shm,tcp"};
  if (name == "GpuStaged") {
    return MakeDeviceFabric(Must(MakeUcxFabric(hosts)), device, DevicePath::kHostStaged);
  }
  if (name == "GpuIpc") {
    return MakeDeviceFabric(Must(MakeCudaPeerFabric(hosts, gpu)), device, DevicePath::kOnDevice);
  }
  if (name == "GpuNccl") {
    return MakeDeviceFabric(Must(MakeNcclFabric(hosts, gpu)), device, DevicePath::kOnDevice);
  }
  if (name == "GpuNcclLanes") {
    std::shared_ptr<LinkFabric> below = Must(MakeUcxLinkFabric(hosts));
    return MakeDeviceFabric(Must(MakeNcclRings(std::move(below), gpu)), device,
                            DevicePath::kOnDevice);
  }
  return Must(MakeGpuFabric(absl::StrCat("cuda:", gpu), device, {.hosts = hosts}));
}

bool OverNccl(const std::string& name) { return name == "GpuNccl" || name == "GpuNcclLanes"; }

int Gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace

// GpuPaths: what workers use.
std::vector<std::string> ConformanceFabrics() {
  return {"GpuStaged", "GpuIpc", "GpuNccl", "GpuNcclLanes", "GpuPaths"};
}

std::string WhyNotConformance(const std::string& name) {
  const int needed = OverNccl(name) ? kRanksMax : 1;
  if (Gpus() >= needed) return "";
  return absl::StrCat("needs ", needed, " GPUs, one for each rank of NCCL's; there are ", Gpus());
}

FabricFactory ConformanceFactory(const std::string& name) {
  return [name, rank = 0]() mutable {
    const int gpu = OverNccl(name) ? rank++ % kRanksMax : 0;
    const std::shared_ptr<CudaDevice> device = Must(OpenCudaDevice(absl::StrCat("cuda:", gpu)));
    return MakeBufferedFabric(MakeOnGpu(name, gpu, device), device);
  };
}

}  // namespace skein::engine
