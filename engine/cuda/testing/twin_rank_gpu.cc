#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/paths/worker_fabric.h"
#include "engine/cuda/engine/cuda_backend.h"
#include "engine/cuda/ops/device_sampler.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"
#include "engine/cuda/testing/twin_rank.h"

namespace skein::engine {

// All on the first GPU, over NCCL each on one of its own.
std::vector<std::string> TestingWays() { return {"auto", "ipc", "host", "nccl"}; }

std::string WhyNotOn(const std::string& way, int ranks) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) return "needs a GPU";
  if (way != "nccl" || gpus >= ranks) return "";
  return absl::StrCat("NCCL needs a GPU for each of ", ranks, " ranks; there are ", gpus);
}

TestingRank MakeTestingRank(const std::string& way, int rank, LocalHub*) {
  const std::string name = absl::StrCat("cuda:", way == "nccl" ? rank : 0);
  CudaBackend backend = MakeCudaBackend(name, [](const std::string& what) {
                          std::fprintf(stderr, "%s\n", what.c_str());
                        }).value();
  WorkerFabricOptions options;
  options.hosts.tls = "self,shm,tcp";
  options.path = CommPathOf(way);
  auto fabric = MakeGpuFabric(name, backend.gpu, options);
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", fabric.status().ToString().c_str());
    std::abort();
  }
  const auto make_sampler = [gpu = backend.gpu](int vocab_size) {
    return DeviceSampler::Make(gpu, gpu->Stream(), vocab_size, kSkinnyGemmRowsMax);
  };
  return {std::move(backend.ops), std::move(backend.device), *std::move(fabric), make_sampler,
          backend.make_decode_runner};
}

}  // namespace skein::engine
