#include "engine/cuda/engine/cuda_engine.h"

#include <utility>

#include "engine/cuda/engine/cuda_backend.h"
#include "engine/cuda/ops/device_sampler.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"
#include "engine/model/group/group_engine.h"

namespace skein::engine {

absl::StatusOr<CudaEngine> MakeCudaEngine(const std::string& model_dir,
                                          const ModelEngineOptions& options, int group_ranks_max) {
  absl::StatusOr<CudaBackend> backend = MakeCudaBackend(options.device_name, options.warn);
  if (!backend.ok()) return backend.status();
  ModelEngineOptions with_device = options;
  with_device.make_token_sampler = [gpu = backend->gpu](int vocab_size) {
    return DeviceSampler::Make(gpu, gpu->Stream(), vocab_size, kSkinnyGemmRowsMax);
  };
  with_device.make_decode_runner = backend->make_decode_runner;
  if (group_ranks_max < 2) {
    auto engine = MakeModelEngine(model_dir, std::move(backend->ops), std::move(backend->device),
                                  with_device);
    if (!engine.ok()) return engine.status();
    return CudaEngine{*std::move(engine), std::move(backend->gpu)};
  }
  auto engine = GroupEngine::Make(model_dir, std::move(backend->ops), std::move(backend->device),
                                  with_device, group_ranks_max);
  if (!engine.ok()) return engine.status();
  const int ranks = (*engine)->GroupRanksMax();
  return CudaEngine{*std::move(engine), std::move(backend->gpu), ranks};
}

}  // namespace skein::engine
