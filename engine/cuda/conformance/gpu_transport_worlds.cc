// The worlds of the transport's conformance suite on a GPU, which the two processes share: through
// staging memory of the host, and straight from memory to memory by CUDA's IPC (engine/transport/
// worlds.cc has the same on a double).
#include <memory>
#include <string>

#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/transport/conformance/conformance.h"
#include "engine/transport/ucx/ucx_transport.h"

namespace skein::engine {
namespace {

World CudaWorld(const std::string& name, const std::string& lane, const std::string& tls,
                TargetMemory memory) {
  const bool direct = IsShared(memory);
  return {name,
          lane,
          direct ? "direct" : "host-staged",
          [=] {
            return MakeUcxTransport({.tls = tls}, MakeCudaCopyStream("cuda:0").value(),
                                    direct ? MakeCudaPeerOpener("cuda:0").value() : nullptr)
                .value();
          },
          [=] { return SpawnProcessTarget(tls, memory, "engine/cuda/conformance/gpu_peer"); },
          OpenCudaDevice("cuda:0").value()};
}

std::string NameOfWorld(const testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace

World MakeWorld(const std::string& name) {
  using enum TargetMemory;
  if (name == "CudaSharedMemory") return CudaWorld(name, "ring", "self,shm", kHostAndDevice);
  if (name == "CudaTcp") return CudaWorld(name, "tcp", "self,tcp", kHostAndDevice);
  if (name == "CudaDirect") return CudaWorld(name, "cuda-ipc", "self,shm", kAllocation);
  return CudaWorld("CudaMixed", "cuda-ipc", "self,shm", kDeviceAndHost);
}

INSTANTIATE_TEST_SUITE_P(Gpu, TransportConformance,
                         testing::Values("CudaSharedMemory", "CudaTcp", "CudaDirect", "CudaMixed"),
                         NameOfWorld);

// Not CudaDirect: nothing there waits for the target.
INSTANTIATE_TEST_SUITE_P(Gpu, TransportOfProcesses,
                         testing::Values("CudaSharedMemory", "CudaTcp", "CudaMixed"), NameOfWorld);

}  // namespace skein::engine
